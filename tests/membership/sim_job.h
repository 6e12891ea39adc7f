// A whole job in one process and without a clock: the shipped Coordinator, AgentCore and Arena, and
// members that play their part through the functions of shmem/, one small move at a time. Who moves
// when is the caller's choice, so every schedule can be had, and had again.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "membership/agent/agent_core.h"
#include "membership/coordinator/coordinator.h"
#include "shmem/arena.h"
#include "tests/membership/sim_member.h"

namespace regroup::membership {

class SimJob {
 public:
  explicit SimJob(SimOptions options);

  // Lets everybody move in turn, a millisecond each round, until `done`; false after ten minutes of
  // that time.
  bool run_until(const std::function<bool()>& done);
  bool run_to_end() {
    return run_until([&] { return end.has_value(); });
  }
  bool steady(proto::Generation g,
              std::uint32_t size);  // run until every member is at work in World g
  void bury();  // the agent learns of all deaths; nothing is delivered to the coordinator yet
  bool reach(proto::Step step);  // run until everybody alive has applied it

  // One move of each kind, on one node or on the first that has one; false if there was nothing to
  // do.
  bool deliver_to_agent(std::optional<proto::NodeId> node = {});
  bool deliver_to_coordinator(std::optional<proto::NodeId> node = {});
  bool report_death(std::optional<proto::NodeId> node = {});
  bool act(SimMember& m);
  bool attend(proto::NodeId node);  // an agent looks at its state transfer
  void pass(base::Duration time);

  void kill(proto::MemberId id, int signal = 9);  // its process dies here and now
  void exit(proto::MemberId id, int status);
  void fail(const proto::Failure& failure) { from_member(failure.member, failure); }
  proto::Reply ask(const proto::Body& request);  // as a control command
  void restart_coordinator(bool lose_messages);  // from the journal

  // Of a job with hosts. A lost one lives on in the dark: its members reach the others, nobody
  // speaks for it.
  proto::NodeId add_host(std::uint32_t slots, bool leased = false);
  void lose_host(proto::NodeId node);
  void resize_host(proto::NodeId node, std::uint32_t slots, bool for_now = false);
  [[nodiscard]] std::size_t living_on(proto::NodeId node) const;
  [[nodiscard]] std::vector<proto::NodeId> hosts() const;  // that are there
  // Some of the sources of the state transfer that `node` takes have given their parts, others not.
  [[nodiscard]] bool transfer_is_halfway(proto::NodeId node) const;

  SimMember& member(proto::MemberId id) { return members.at(id); }
  AgentCore& agent(proto::NodeId node = 0) { return nodes_.at(node).agent; }
  const shmem::Arena& arena_of(const SimMember& m) { return agent(m.node).arena(); }
  shmem::MemberSlot& member_slot(proto::MemberId id) {
    return arena_of(member(id)).member_slot(*member(id).slot);
  }
  proto::Generation generation() const { return journal ? journal->generation : 0; }
  bool heard(const std::string& words) const;  // some sentence said to the user contains them

  const SimOptions options;
  base::TimePoint now{std::chrono::seconds(1000)};
  proto::Incarnation incarnation = 1;
  std::optional<Coordinator> coordinator;
  std::map<proto::MemberId, SimMember> members;
  std::optional<proto::World> journal;  // the newest in it
  Past past;                            // all that it holds
  std::vector<proto::World> worlds;
  std::optional<Done> end;
  std::vector<std::string> says;
  std::uint64_t transfers_read = 0, results_replayed = 0;
  std::size_t most_sources = 0;     // of a state transfer that was carried to another node
  std::vector<std::string> broken;  // invariants that did not hold; every test expects none

 private:
  struct Death {
    proto::MemberId id;
    bool by_futex;  // the futex of its slot fired; else the process was reaped
    int status, signal;
  };
  struct Node {
    AgentCore agent;
    std::uint32_t slots = 0;
    bool leased = false, for_now = false;
    bool up = true;
    std::deque<proto::Message> to_agent{}, to_coordinator{};
    std::deque<Death> deaths{};
    std::optional<proto::StartTarget> fetch{};  // that runs ...
    std::set<proto::NodeId> gave{};             // ... to which these have given their parts ...
    TransferTarget::Received received{};        // ... and which has come so far
  };
  // A node with something in that queue: the one asked for, or the first.
  template <class T>
  Node* with(std::deque<T> Node::*queue, std::optional<proto::NodeId> node);
  void begin();
  void say_of_nodes(proto::Body body);
  [[nodiscard]] proto::NodeUp news_of(proto::NodeId node) const;
  void perform(Effects effects);
  void perform(proto::NodeId node, AgentEffects effects);
  void check_world(const proto::World& world);
  void violated(const std::string& what) { broken.push_back(what); }
  void from_member(proto::MemberId id, proto::Body body);
  void die(proto::MemberId id, int status, int signal);

  // sim_member.cc
  bool regroup(SimMember& m);
  bool enter(SimMember& m, const proto::World& world);
  bool settle(SimMember& m);
  bool work(SimMember& m);
  bool compute_or_vote(SimMember& m, proto::Position at);
  bool all_sealed(const std::vector<proto::SlotId>& owners, proto::Step step);
  bool old_readers(const SimMember& m);
  bool meet(SimMember& m);  // tell and learn addresses; true when it knows all
  void committed(SimMember& m, proto::Position at);

  // sim_transfer.cc
  void write_snapshot(const SimMember& m, std::uint32_t salt);
  void write_result(const proto::World& world, proto::Step step);
  bool donate(SimMember& m);
  bool transfer_offered(const SimMember& m);
  bool load_transfer(SimMember& m);
  bool replay(SimMember& m);
  bool catch_up(SimMember& m);
  bool carry(proto::NodeId node);
  bool carry_part(proto::NodeId node, std::size_t index);
  std::string carry_result(proto::NodeId node);
  void end_fetch(proto::NodeId node);

  std::map<proto::NodeId, Node> nodes_;
  std::set<proto::MemberId> known_lost_;  // a MemberLost of them was delivered to this coordinator
  std::map<std::pair<proto::Generation, std::uint64_t>, std::set<proto::MemberId>> votes_;
  std::optional<proto::Reply> reply_;
};

}  // namespace regroup::membership
