// The agent of a host other than the one where regroup was called: connects to its parent, which is the
// controller of the job or, in a tree, another agent, and does what the controller says.
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "core/fd.h"
#include "core/status.h"
#include "core/world.h"
#include "launcher/containment/job_record.h"
#include "launcher/net/job_secret.h"
#include "launcher/options/request.h"
#include "launcher/supervise/agent.h"

namespace regroup::node {

struct InventoryRequest;
struct InventoryReply;
struct QueryLocalCheckpoint;
struct LocalCheckpointReply;

// Of a host whose agent is told that it ends, if nobody has said otherwise.
inline constexpr std::chrono::seconds kNoticeGrace{30};

// Does what the order says, on the loop, until `answer` has been given one that is not busy, or `stop`, which
// it returns, is called.
using LocalCheckpointQuery =
    std::function<std::function<void()>(boost::asio::io_context& loop, const QueryLocalCheckpoint& order,
                                        std::function<void(const LocalCheckpointReply&)> answer)>;

struct NodeAgentOptions {
  std::string job;  // its id
  core::NodeId node = 0;
  core::NodeId parent = 0;            // that started it; 0: the controller
  std::string endpoints;              // of the parent, as launcher::to_string() writes them
  std::string build;                  // of this regroup
  std::uint32_t slots = 0;            // cores that members may use
  launcher::Environment environment;  // of this process
  std::string folder;                 // for regroup-pmi: private, exists; "": none
  std::string agent_socket;           // where members of an elastic job connect
  std::shared_ptr<const launcher::JobSecret> secret;
  std::shared_ptr<launcher::JobRecord> record;  // may be none
  std::function<void(const InventoryRequest& order, InventoryReply& answer)> inventory =
      {};                                       // says what this host has
  LocalCheckpointQuery local_checkpoints = {};  // looks for checkpoints
  launcher::UsageMeter::GpuReader read_gpu = {};
};

struct Setup;

// An agent that also serves MPI programs: a rigid job starts the members, and those that join are the ranks
// of one World of fixed size.
[[nodiscard]] bool serves_ranks(const Setup& setup);

// Makes what directs the members of an elastic job; `send` takes what it says to the coordinator.
using MembershipFactory = std::function<std::unique_ptr<launcher::MembershipJob>(
    launcher::Agent& agent, const Setup& setup, std::function<void(const core::Message&)> send)>;

// Serves until the controller has said that the job is over, or is gone. The exit status of this process;
// what went wrong has been said on standard error. For a process whose standard input is the launcher's sign
// of life.
[[nodiscard]] int run_node_agent(NodeAgentOptions options, core::Fd guardian,
                                 const MembershipFactory& membership);

// What a program gets here: the environment that it has at the controller, but for what belongs to a host or
// a login. Those are `own`.
[[nodiscard]] launcher::Environment environment_there(launcher::Environment sent,
                                                      const launcher::Environment& own);

}  // namespace regroup::node
