// An elastic job on thousands of hosts in one process: the shipped coordinator, journal, agents,
// arenas and messages, and between them a controller and relays that are the shipped Router and the
// least around it. Members join, enter each World and compute nothing. docs/results/scale.md.
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
  std::uint32_t joiners = 0;             // that come later
  std::size_t radix = 0;                 // of the tree; 0: all links are the controller's
  std::optional<base::Duration> each{};  // what any handler takes; nothing: what it takes
  std::string journal;                   // its file
};

// What one change has cost, from its beginning until the last agent knew of its end.
struct Cost {
  std::string change;
  double seconds = 0.0;
  Traffic coordinator, controller;
  std::uint64_t most_messages = 0;  // in and out, of any one agent
  std::uint32_t depth = 0;          // messages one after the other
  std::uint32_t worlds = 0, members = 0;
};

class Cluster {
 public:
  explicit Cluster(ClusterOptions options);

  // In this order, each at most once.
  [[nodiscard]] Cost launch();  // from "these nodes are there" to World 1
  [[nodiscard]] Cost fence();   // everybody's address of its data plane to everybody
  [[nodiscard]] Cost lose_member();
  [[nodiscard]] Cost lose_switch(std::uint32_t hosts);  // all links to the last ones break at once
  // A member dies, `after` more things happen, then the first agent with others below it is lost,
  // with all that it carries; its children connect to the controller. As often as there is such an
  // agent.
  [[nodiscard]] Cost lose_inner(std::uint32_t after);
  [[nodiscard]] Cost join();

  [[nodiscard]] const proto::World& world() const { return coordinator_.world(); }
  // What went wrong; every run expects none.
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
    std::optional<agent::ReliableSession> session{};  // with the controller, through others
    bool up = true, adopting = false;
    proto::Generation world = 0, addresses = 0;  // it knows of
    std::size_t met = 0;                         // addresses of the newest
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

  // What was decoded lately, and what that took.
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
  std::vector<std::optional<agent::ReliableSession>> sessions_;  // of the controller, by node - 1
  std::vector<std::unique_ptr<Agent>> agents_;                   // by node - 1
  std::map<proto::MemberId, proto::NodeId> node_of_;
  // Which all agents share once they have read it for themselves.
  std::shared_ptr<const proto::World> newest_;
  std::vector<std::string> broken_;
};

}  // namespace regroup::scale
