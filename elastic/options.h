// The environment variables of a member. No other source of the training side reads the
// environment.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "elastic/detected_launch.h"
#include "proto/world.h"

namespace regroup::elastic {

// How this process was started. Agents set all of it.
struct Environment {
  std::string agent_socket;    // REGROUP_AGENT; empty: no agent
  proto::MemberId member = 0;  // REGROUP_MEMBER
  bool fixed = false;          // REGROUP_WORLD=fixed: the agent's World is of fixed size
  std::string rank_exits;      // REGROUP_RANK_EXITS: file of ranks of this launch that have ended
  bool alone = false;          // REGROUP_WORLD=alone: a World of one, whatever a launcher says
  std::string job;             // REGROUP_JOB
  std::uint32_t shards = 0;    // REGROUP_SHARDS, used only without an agent; 0: not set
  std::uint64_t seed = 0;      // REGROUP_SEED, used only without an agent
  std::string threads = "1";   // OMP_NUM_THREADS
  proto::Step checkpoint_every = 0;  // REGROUP_CHECKPOINT_EVERY, in steps; 0: no checkpoints
  std::string resume_from;   // REGROUP_CHECKPOINT_FROM: folder of the checkpoint to resume from
  std::string resume_local;  // REGROUP_CHECKPOINT_LOCAL: folder where this host may have a copy
  // REGROUP_CHECK_STATE: 0: states may differ in bits and are not compared.
  bool check_state = true;
  proto::Step audit_every = 0;  // REGROUP_AUDIT, in steps; 0: no audits
  std::string ledger;           // REGROUP_LEDGER: folder of the ledger; empty: none is written
  // REGROUP_DEVICE_MEMORY: leaf buffers that a member has on its GPU; 0: none.
  std::uint32_t device_memory = 0;
  // REGROUP_NCCL_TIMEOUT, in seconds: of the start of a communicator of NCCL.
  std::uint32_t nccl_timeout = 30;
  bool health = false;  // REGROUP_HEALTH=1: the GPU of a member is checked
  // Of a single wait for the GPU in that check: REGROUP_HEALTH_LIMIT, times
  // REGROUP_TIME_LIMIT_FACTOR if that is above 1.
  base::Duration health_limit = std::chrono::seconds(30);
};

[[nodiscard]] base::Result<Environment> read_environment();
// Why NCCL cannot be used: it takes NCCL_COMM_BLOCKING and NCCL_COMM_ID whatever its calls ask for.
// "" if it can.
[[nodiscard]] std::string why_not_nccl();
// REGROUP_PS: the stores of the job's parameter servers in the order of their numbers, separated by
// semicolons: the socket where the agent gives out the memory of this host's, the address of the
// gateway of another host's. Empty: the job has none. Then, if there are several replicas of each
// range, "replicas=N" as the last element.
[[nodiscard]] std::vector<std::string> read_parameter_servers();
// "worker 2" of REGROUP_ROLE and REGROUP_ROLE_RANK; empty in a job without roles.
[[nodiscard]] std::string read_role_member();
// REGROUP_FAKE_DEVICE, for tests: Python takes memory of the host for that of a device.
[[nodiscard]] bool read_fake_device();

// find_launch() of this process.
[[nodiscard]] base::Result<std::optional<DetectedLaunch>> read_launch();
[[nodiscard]] pid_t read_rank_above();  // rank_above() of this process

}  // namespace regroup::elastic
