// Environments as data, programs found in their PATH, and the variables each member gets.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/fd.h"
#include "core/status.h"
#include "core/world.h"

namespace regroup::launcher {

using Environment = std::map<std::string, std::string>;

// "NAME=value" for each, for execve.
[[nodiscard]] std::vector<std::string> to_strings(const Environment& environment);

// The file that `program` means when it is started in `wdir` ("" is the current folder) with `environment`.
// kNotFound names the program, and PATH if it was searched.
[[nodiscard]] core::Result<std::string> find_program(const std::string& program, const std::string& wdir,
                                                     const Environment& environment);

// A TCP port of 127.0.0.1 that nobody gets by chance while `socket` is open. It is bound with SO_REUSEADDR
// and never listens, so a program that sets SO_REUSEADDR too can take it even now.
struct HeldPort {
  core::Fd socket;
  std::uint16_t port = 0;
};
[[nodiscard]] core::Result<HeldPort> hold_port();

// The place of a member at the start of its process.
struct Place {
  core::MemberId member = 0;
  std::uint32_t rank = 0;
  std::uint32_t world_size = 1;
};

// `base` plus RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, OMP_NUM_THREADS (1
// unless set), REGROUP_JOB, and for an elastic job (`agent_socket` not empty) REGROUP_AGENT and
// REGROUP_MEMBER.
[[nodiscard]] Environment member_environment(Environment base, const Place& place, const std::string& job,
                                             std::uint16_t master_port, const std::string& agent_socket);

}  // namespace regroup::launcher
