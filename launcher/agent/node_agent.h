// The agent of a host other than the one where regroup was called: connects to its parent, which is
// the controller or, in a tree, another agent, and executes what the controller orders.
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "base/fd.h"
#include "base/status.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/store.h"
#include "launcher/process/job_record.h"
#include "launcher/spec/request.h"
#include "launcher/transport/job_secret.h"
#include "proto/world.h"

namespace regroup::agent {

struct InventoryRequest;
struct InventoryReply;
struct QueryLocalCheckpoint;
struct LocalCheckpointReply;

// Time until a host is lost after a notice that names none.
inline constexpr std::chrono::seconds kNoticeGrace{30};

// Executes the query on the loop and calls `answer` until a reply is not busy. The returned
// function cancels it.
using LocalCheckpointQuery = std::function<std::function<void()>(
    boost::asio::io_context& loop, const QueryLocalCheckpoint& order,
    std::function<void(const LocalCheckpointReply&)> answer)>;

struct NodeAgentOptions {
  std::string job;  // its id
  proto::NodeId node = 0;
  proto::NodeId parent = 0;       // the process that started it; 0: the controller
  std::string endpoints;          // of the parent, as transport::to_string() writes them
  std::string build;              // version of this regroup
  std::uint32_t slots = 0;        // cores that members may use
  spec::Environment environment;  // of this process
  std::string folder;             // for regroup-pmi: private, exists; "": none
  std::string agent_socket;       // where members of an elastic job connect
  std::shared_ptr<const transport::JobSecret> secret;
  std::shared_ptr<process::JobRecord> record;  // may be nullptr
  // Takes the inventory of this host.
  std::function<void(const InventoryRequest& order, InventoryReply& answer)> inventory = {};
  LocalCheckpointQuery local_checkpoints = {};  // searches the host's own checkpoint directory
  metrics::UsageMeter::GpuReader read_gpu = {};
  StoreFactory stores = {};  // none: this agent runs no part of a parameter server
};

struct Setup;

// The agent also serves a fixed-size job: the job starts the members, and those that join are the
// ranks of one World.
[[nodiscard]] bool serves_ranks(const Setup& setup);

// Makes the membership logic of an elastic job; `send` sends a message to the coordinator.
using MembershipFactory = std::function<std::unique_ptr<agent::MembershipJob>(
    Agent& agent, const Setup& setup, std::function<void(const proto::Message&)> send)>;

// Serves until the controller ends the job or is lost. Returns the exit status of this process;
// errors have been printed on standard error. Standard input of this process must be the pipe whose
// end means the end of the launcher.
[[nodiscard]] int run_node_agent(NodeAgentOptions options, base::Fd guardian,
                                 const MembershipFactory& membership);

// The environment of a program on this host: that of the controller, except for variables of a host
// or a login, which come from `own`; of allocators see share_job_variables().
[[nodiscard]] spec::Environment environment_there(spec::Environment sent, spec::Environment own);

}  // namespace regroup::agent
