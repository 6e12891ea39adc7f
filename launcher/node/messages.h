// What the head of a job (the agent of the host where regroup was called) and its agents on other hosts say
// to each other. Each agent is asked with Setup after its Hello; then programs and orders follow, which are
// handled in that order. Where agents are a tree, those between the two pass on what is said.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/message.h"
#include "core/status.h"
#include "core/variant.h"
#include "launcher/node/host_notice.h"
#include "launcher/node/own_messages.h"
#include "launcher/node/tree_messages.h"
#include "launcher/options/request.h"
#include "launcher/pmi/messages.h"
#include "launcher/supervise/crew.h"
#include "launcher/supervise/node.h"

namespace regroup::node {

// --- head -> agent
// What does this host have? May come before Setup. Answered by Surveyed.
struct Survey {
  bool devices = false;  // GPUs and NICs, too
  std::string topology;  // file that describes them; "": look for them
  // Instead of all that: to be held there for members as long as the agent lives; 0: any one.
  std::vector<std::uint16_t> ports = {};
  launcher::ClaimScope claims = {};  // name and outer, as the head has them; "": as the host has them
};
// What one of the members that a host may have is given.
struct Seat {
  std::vector<int> cores;             // operating system numbers it is bound to; empty: not bound
  launcher::Environment environment;  // of its devices
};
// Of an elastic job: what its agents have in common, and the seats of that host.
struct ElasticSetup {
  std::uint32_t lines = 1;  // of an arena
  std::uint32_t shards = 1;
  std::uint64_t seed = 0;
  bool any_fingerprint = false;
  std::uint32_t kept_results = 0;  // for learners
  std::uint64_t learn_above = 0;
  std::vector<Seat> seats = {};  // empty: members are neither bound nor given devices
  CheckpointPlan checkpoints = {};
  std::string head = {};  // takes in an agent whose parent is gone; "": the agent ends with its parent
  std::chrono::milliseconds finished_told{60'000};  // of a member that does not end; 0: never
};
// What all members on that host have in common.
struct Setup {
  std::uint32_t host = 0;  // its number in the job, and the name by which the user knows it
  std::string name;
  launcher::OutputRequest output;
  launcher::StdinRequest stdin_to;
  bool verbose = false, quiet = false, services = false, usage = false;  // of MPI; what members use is told
  launcher::MemoryPolicy memory = launcher::MemoryPolicy::kKernel;
  launcher::Master master;
  launcher::NoticeRequest notice = {};
  std::vector<std::string> suspended_by = {};  // of its sources, those that had suspended the host
  launcher::ClaimScope claims = {};            // as of Survey
  std::optional<ElasticSetup> elastic = {};    // members are started by Membership, or serves_ranks()
};
// A program; without a path it is looked for there.
struct AddApp {
  std::uint32_t number = 0;
  launcher::App app;
};
struct DropApp {
  std::uint32_t number = 0;
};
// Answered by SpaceStarted. In an elastic job AddApp is, with space 0, if the program is not there.
struct StartSpace {
  launcher::SpaceOrder order;
};
struct Signal {
  bool all = false;
  core::MemberId member = 0;  // unless all
  int signal = 0;
};
// No member lives, and none will be started: answered by Done, when all output has been sent.
struct EndHost {};

// --- agent -> head
struct Hello {  // the first message
  std::string version;
  std::string host_name;
  std::uint32_t slots = 0;  // cores that members may use
  std::uint16_t port = 0;   // that is free there, for MASTER_PORT
};
struct Surveyed {
  core::Status status;
  std::string host;  // JSON, for who asked; "": `status` says why
};
struct SpaceStarted {
  std::uint32_t space = 0;
  core::Status status;
};
struct Exited {
  launcher::MemberExit exit;
};
struct Said {
  std::string text;
};
struct Used {
  std::string json;  // what members there use, as usage_json() writes it
};
// Sent every kBeat to the parent, so that a host that has stopped is told from one that has nothing to say;
// agents that have children send it to them, too.
struct Beat {};
inline constexpr std::chrono::milliseconds kBeat{500};
// The last message: the head closes the link when it has taken it.
struct Done {
  bool output_lost = false;
  std::string unsaved = {};  // AgentJob::unsaved()
};

// --- both
// Between the coordinator of an elastic job and its agent there.
struct Membership {
  core::Message message;
};
// For regroup-pmi there, or from it.
struct Services {
  pmi::Message message;
};
// Of one of the standard streams: 0 to members, 1 and 2 from them. No more than kWindow bytes are on their
// way at any time; Taken tells of those that have arrived.
struct Data {
  std::uint8_t stream = 0;
  bool end = false;  // nothing follows
  std::vector<std::byte> bytes;
};
struct Taken {
  std::uint8_t stream = 0;
  std::uint32_t bytes = 0;
  bool broken = false;  // nobody will read any more
};
inline constexpr std::uint32_t kWindow = 512 << 10;

using Message =
    core::Variant<Setup, AddApp, DropApp, StartSpace, Signal, EndHost, Hello, SpaceStarted, Exited, Said,
                  Beat, Done, Services, Data, Taken, Membership, StartAgents, Reach, EndAgent, ChildNews,
                  Relayed, Gathered, Survey, Surveyed, Used, Heard, HostNotice, AskOwn, OwnFound>;

}  // namespace regroup::node
