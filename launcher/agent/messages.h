// Messages between the controller of a job (the launcher's process on the host where regroup was
// called) and its agents on other hosts. An agent says Hello; Setup follows, then programs and
// orders, which the agent handles in the order of arrival. Where agents form a tree, the agents on
// the path forward these messages.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/variant.h"
#include "launcher/agent/host_notice.h"
#include "launcher/agent/local_checkpoint_messages.h"
#include "launcher/agent/node.h"
#include "launcher/agent/store.h"
#include "launcher/agent/tree_messages.h"
#include "launcher/pmi/messages.h"
#include "launcher/process/process_table.h"
#include "launcher/spec/request.h"
#include "proto/message.h"

namespace regroup::agent {

// --- controller -> agent
// Requests the resources of this host. May be sent before Setup. Answered by InventoryReply.
struct InventoryRequest {
  bool devices = false;  // include GPUs and NICs
  std::string topology;  // file that describes them; "": detect them
  // If not empty, instead of the inventory: TCP ports to reserve while the agent lives; 0: any free
  // port.
  std::vector<std::uint16_t> ports = {};
  process::ClaimScope claims = {};  // name and outer of the controller; "": those of the host count
};
// The resources of one member slot of a host.
struct SlotResources {
  std::vector<int> cores;         // operating system numbers it is bound to; empty: not bound
  spec::Environment environment;  // of its devices
};
// For an elastic job: settings that all its agents share, and the slots of this host.
struct ElasticSetup {
  std::uint32_t arena_slots = 1;  // member slots of an arena
  std::uint32_t shards = 1;
  std::uint64_t seed = 0;
  bool any_fingerprint = false;
  std::uint32_t kept_results = 0;  // for learners
  std::uint64_t learn_above = 0;
  std::vector<SlotResources> slots = {};  // empty: members are neither bound nor given devices
  spec::CheckpointPlan checkpoints = {};
  std::string controller = {};     // endpoints, for reparenting; "": an agent ends with its parent
  std::uint32_t leaf_buffers = 0;  // of a member's device line; 0: members get none
  // A member that has finished but has not exited after this time is reported; 0: never.
  std::chrono::milliseconds finished_limit{60'000};
};
// Settings that all members on this host share.
struct Setup {
  std::uint32_t host = 0;  // its number in the job
  std::string name;
  spec::OutputRequest output;
  spec::StdinRequest stdin_to;
  bool verbose = false;
  bool quiet = false;
  bool services = false;  // run regroup-pmi for MPI programs
  bool usage = false;     // report resource usage
  spec::MemoryPolicy memory = spec::MemoryPolicy::kKernel;
  process::Master master;
  spec::NoticeRequest notice = {};
  double time_limit_factor = 1;                // REGROUP_TIME_LIMIT_FACTOR of the launcher
  std::vector<std::string> suspended_by = {};  // the notice sources that had suspended the host
  process::ClaimScope claims = {};             // as of InventoryRequest
  // If set, the coordinator starts members, unless serves_ranks().
  std::optional<ElasticSetup> elastic = {};

  [[nodiscard]] base::Duration time_limit(base::Duration usual) const {
    return std::chrono::duration_cast<base::Duration>(usual * time_limit_factor);
  }
};
// A program; without a path the agent searches PATH.
struct AddApp {
  std::uint32_t number = 0;
  process::App app;
};
struct DropApp {
  std::uint32_t number = 0;
};
// Answered by SpaceStarted. In an elastic job AddApp is answered so, with space 0, if the program
// is missing.
struct StartSpace {
  SpaceOrder order;
};
struct Signal {
  bool all = false;
  proto::MemberId member = 0;  // unless all
  int signal = 0;
};
// No member runs, and none will be started. Answered by Done when all output has been sent.
struct EndHost {};

// --- agent -> controller
struct Hello {  // the first message
  std::string version;
  std::string host_name;
  std::uint32_t slots = 0;  // cores that members may use
  std::uint16_t port = 0;   // a free port on this host, for MASTER_PORT
};
struct InventoryReply {
  base::Status status;
  std::string host;  // JSON; "": `status` says why
};
struct SpaceStarted {
  std::uint32_t space = 0;
  base::Status status;
};
struct Exited {
  process::MemberExit exit;
};
struct UserMessage {
  std::string text;
};
struct UsageReport {
  std::string json;  // resource usage of the members there, as usage_json() writes it
};
// Sent to the parent, and by an agent to its children: a peer that sends nothing at all has failed.
struct Heartbeat {};
inline constexpr std::chrono::milliseconds kHeartbeatInterval{500};
// The last message of an agent: the controller then closes the link.
struct Done {
  bool output_lost = false;
  std::string unsaved = {};  // AgentJob::unsaved()
};

// --- both: messages of the membership protocol, between coordinator and agent of an elastic job
struct Membership {
  proto::Message message;
};
// To or from regroup-pmi on that host.
struct Services {
  pmi::Message message;
};
// Bytes of a standard stream: 0 to members, 1 and 2 from them. At most kWindow bytes of a stream
// are in flight; WindowUpdate acknowledges those that were consumed.
struct StreamData {
  std::uint8_t stream = 0;
  bool end = false;  // end of the stream
  std::vector<std::byte> bytes;
};
struct WindowUpdate {
  std::uint8_t stream = 0;
  std::uint32_t bytes = 0;
  bool broken = false;  // the reader has closed
};
inline constexpr std::uint32_t kWindow = 512 << 10;

using Message =
    base::Variant<Setup, AddApp, DropApp, StartSpace, Signal, EndHost, Hello, SpaceStarted, Exited,
                  UserMessage, Heartbeat, Done, Services, StreamData, WindowUpdate, Membership,
                  StartAgents, AddRoute, EndAgent, ChildEvent, Relayed, Gathered, InventoryRequest,
                  InventoryReply, UsageReport, Ack, HostNotice, QueryLocalCheckpoint,
                  LocalCheckpointReply, StartStore, QueryStore, StoreStarted, StoreReply,
                  StoreFailed>;

}  // namespace regroup::agent
