// Simulates an elastic job on thousands of hosts in one process. Coordinator, journal, agents,
// arenas and messages are the real ones; controller and relays are the real Router with as little
// as possible around it. Members join and enter each World, but compute nothing.
// docs/results/scale.md.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "launcher/agent/reliable_session.h"
#include "launcher/agent/router.h"
#include "launcher/job/journal.h"
#include "membership/agent/agent_core.h"
#include "membership/coordinator/coordinator.h"
#include "proto/wire.h"
#include "tests/scale/network.h"

namespace regroup::scale {

struct ClusterOptions {
  std::uint32_t agents = 16;
  std::uint32_t joiners = 0;             // agents that join() adds
  std::size_t radix = 0;                 // of the tree; 0: every agent has a link to the controller
  std::optional<base::Duration> each{};  // the time of every handler; nullopt: as measured
  std::string journal;                   // path of the journal file
};

// The cost of one change, from its beginning until the last agent knows its result.
struct Cost {
  std::string change;
  double seconds = 0.0;
  Traffic coordinator, controller;
  std::uint64_t most_messages = 0;  // sent and received by the busiest agent
  std::uint32_t depth = 0;          // length of the longest chain of messages
  std::uint32_t worlds = 0, members = 0;
};

class Cluster {
 public:
  explicit Cluster(ClusterOptions options);

  // The changes. To be called in this order, each at most once unless it says otherwise.
  [[nodiscard]] Cost launch();  // from the report of the nodes to World 1
  [[nodiscard]] Cost fence();   // every member's data-plane address to every other member
  [[nodiscard]] Cost lose_member();
  [[nodiscard]] Cost lose_switch(std::uint32_t hosts);  // all links to the last hosts break at once
  // A member dies; after `after` more events the first agent that relays for others is lost, with
  // all messages that it holds; its children connect to the controller. May be called as long as
  // there is such an agent.
  [[nodiscard]] Cost lose_inner(std::uint32_t after);
  [[nodiscard]] Cost join();

  [[nodiscard]] const proto::World& world() const { return coordinator_.world(); }
  // The violations found; empty in a correct run.
  [[nodiscard]] const std::vector<std::string>& broken() const { return broken_; }
  // Steps from the controller to the farthest agent.
  [[nodiscard]] std::size_t levels() const;

 private:
  struct Agent {
    Agent(const membership::AgentOptions& options, proto::NodeId node)
        : core(options), router(node) {}
    membership::AgentCore core;
    agent::Router router;
    proto::NodeId parent = 0;
    std::optional<agent::ReliableSession> session{};  // with the controller, through relays
    bool up = true, adopting = false;
    proto::Generation world = 0, addresses = 0;  // the newest that the agent knows
    std::size_t met = 0;                         // addresses known in generation `addresses`
  };
  static ProcessId process(proto::NodeId node) { return node + 1; }
  void handle(ProcessId to, ProcessId from, const Bytes& bytes);
  void add_agent();
  [[nodiscard]] Cost measure(const std::string& change, const std::function<void()>& begin,
                             const std::function<bool()>& done);
  void settle();
  [[nodiscard]] bool all_know(proto::Generation Agent::*what) const;

  // The coordinator.
  void to_coordinator(const proto::Message& message);
  void perform(membership::Effects effects);
  void tick_later();
  // The controller.
  void tell_coordinator(proto::Body body);
  [[nodiscard]] std::shared_ptr<const agent::Message> read(const Bytes& bytes);
  void from_coordinator(const proto::Message& message);
  void at_controller(proto::NodeId child, const agent::Message& message);
  void unwrap(proto::NodeId child, const agent::Relayed& relayed);
  void ack_at_controller(proto::NodeId node, const agent::Ack& ack);
  void tell_agent(proto::NodeId node, const Bytes& bytes, std::uint64_t number);
  // An agent.
  void at_agent(proto::NodeId node, proto::NodeId from, const Bytes& bytes);
  void from_above(proto::NodeId node, const agent::Message& message);
  void own(proto::NodeId node, const agent::Message& message);
  void ack_at_agent(proto::NodeId node, const agent::Ack& ack);
  void orphaned(proto::NodeId node);
  void up(proto::NodeId node, const agent::Message& message);
  void pass(proto::NodeId node, const agent::Message& message);
  void lose_child(proto::NodeId node, proto::NodeId child);
  void perform(proto::NodeId node, membership::AgentEffects effects);
  void start_member(proto::NodeId node, proto::MemberId member);
  void enter(proto::NodeId node);
  void forget_pages(proto::NodeId node);

  // A message decoded lately, and the time that this took.
  struct Read {
    Bytes bytes;
    std::shared_ptr<const agent::Message> message;
    base::Duration sum{};
    std::uint32_t times = 0;
  };

  const ClusterOptions options_;
  Network network_;
  std::deque<Read> reads_;
  proto::FrameReader reader_;
  job::JournalFile journal_;
  membership::Coordinator coordinator_;
  base::TimePoint next_tick_{};
  agent::Router controller_{0};
  std::vector<std::optional<agent::ReliableSession>> sessions_;  // the controller's, by node - 1
  std::vector<std::unique_ptr<Agent>> agents_;                   // by node - 1
  std::map<proto::MemberId, proto::NodeId> node_of_;
  // The newest World. Agents share it after each has decoded its own copy, which saves memory.
  std::shared_ptr<const proto::World> newest_;
  std::vector<std::string> broken_;
};

}  // namespace regroup::scale
