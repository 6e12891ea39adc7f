// A whole job in one process and without a clock: the shipped Coordinator, AgentCore and Arena, and members
// that play their part through the functions of core/, one small move at a time. Who moves when is the
// caller's choice, so every schedule can be had, and had again.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/arena.h"
#include "elastic/membership/agent_core.h"
#include "elastic/membership/coordinator.h"
#include "tests/membership/sim_member.h"

namespace regroup::membership {

class SimJob {
 public:
  explicit SimJob(SimOptions options);

  // Lets everybody move in turn, a millisecond each round, until `done`; false after ten minutes of that
  // time.
  bool run_until(const std::function<bool()>& done);
  bool run_to_end() {
    return run_until([&] { return end.has_value(); });
  }
  bool steady(core::Generation g, std::uint32_t size);  // run until every member is at work in World g
  void bury();                  // the agent learns of all deaths; nothing is delivered to the coordinator yet
  bool reach(core::Step step);  // run until everybody alive has applied it

  // One move of each kind, on one node or on the first that has one; false if there was nothing to do.
  bool deliver_to_agent(std::optional<core::NodeId> node = {});
  bool deliver_to_coordinator(std::optional<core::NodeId> node = {});
  bool report_death(std::optional<core::NodeId> node = {});
  bool act(SimMember& m);
  bool attend(core::NodeId node);  // an agent looks at its state transfer
  void pass(core::Duration time);

  void kill(core::MemberId id, int signal = 9);  // its process dies here and now
  void exit(core::MemberId id, int status);
  void fail(const core::Failure& failure) { from_member(failure.member, failure); }
  core::Reply ask(const core::Body& request);    // as a control command
  void restart_coordinator(bool lose_messages);  // from the journal

  // Of a job with hosts. A lost one lives on in the dark: its members reach the others, nobody speaks for it.
  core::NodeId add_host(std::uint32_t slots, bool lent = false);
  void lose_host(core::NodeId node);
  void resize_host(core::NodeId node, std::uint32_t slots, bool for_now = false);
  [[nodiscard]] std::size_t living_on(core::NodeId node) const;
  [[nodiscard]] std::vector<core::NodeId> hosts() const;  // that are there
  // Some of the sources of the state transfer that `node` takes have given their parts, others not.
  [[nodiscard]] bool transfer_is_halfway(core::NodeId node) const;

  SimMember& member(core::MemberId id) { return members.at(id); }
  AgentCore& agent(core::NodeId node = 0) { return nodes_.at(node).agent; }
  const core::Arena& arena_of(const SimMember& m) { return agent(m.node).arena(); }
  core::MemberSlot& line(core::MemberId id) { return arena_of(member(id)).member_slot(*member(id).slot); }
  core::Generation generation() const { return journal ? journal->generation : 0; }
  bool heard(const std::string& words) const;  // some sentence said to the user contains them

  const SimOptions options;
  core::TimePoint now{std::chrono::seconds(1000)};
  core::Incarnation incarnation = 1;
  std::optional<Coordinator> coordinator;
  std::map<core::MemberId, SimMember> members;
  std::optional<core::World> journal;  // the newest in it
  Past past;                           // all that it holds
  std::vector<core::World> worlds;
  std::optional<Done> end;
  std::vector<std::string> says;
  std::uint64_t transfers_read = 0, results_replayed = 0;
  std::size_t most_sources = 0;     // of a state transfer that was carried to another node
  std::vector<std::string> broken;  // invariants that did not hold; every test expects none

 private:
  struct Death {
    core::MemberId id;
    bool line;  // the futex of its line fired; else the process was reaped
    int status, signal;
  };
  struct Node {
    AgentCore agent;
    std::uint32_t slots = 0;
    bool lent = false, for_now = false;
    bool up = true;
    std::deque<core::Message> to_agent{}, to_coordinator{};
    std::deque<Death> deaths{};
    std::optional<core::StartTarget> fetch{};  // that runs ...
    std::set<core::NodeId> gave{};             // ... to which these have given their parts ...
    TransferTarget::Received received{};       // ... and which has come so far
  };
  // A node with something in that queue: the one asked for, or the first.
  template <class T>
  Node* with(std::deque<T> Node::*queue, std::optional<core::NodeId> node);
  void begin();
  void say_of_nodes(core::Body body);
  [[nodiscard]] core::NodeUp news_of(core::NodeId node) const;
  void perform(Effects effects);
  void perform(core::NodeId node, AgentEffects effects);
  void check_world(const core::World& world);
  void violated(const std::string& what) { broken.push_back(what); }
  void from_member(core::MemberId id, core::Body body);
  void die(core::MemberId id, int status, int signal);

  // sim_member.cc
  bool regroup(SimMember& m);
  bool enter(SimMember& m, const core::World& world);
  bool settle(SimMember& m);
  bool work(SimMember& m);
  bool compute_or_vote(SimMember& m, core::Position at);
  bool all_sealed(const std::vector<core::Seat>& owners, core::Step step);
  bool old_readers(const SimMember& m);
  bool meet(SimMember& m);  // tell and learn contacts; true when it knows all
  void committed(SimMember& m, core::Position at);

  // sim_transfer.cc
  void write_snapshot(const SimMember& m, std::uint32_t salt);
  void write_result(const core::World& world, core::Step step);
  bool donate(SimMember& m);
  bool transfer_offered(const SimMember& m);
  bool load_transfer(SimMember& m);
  bool replay(SimMember& m);
  bool catch_up(SimMember& m);
  bool carry(core::NodeId node);
  bool carry_part(core::NodeId node, std::size_t index);
  std::string carry_result(core::NodeId node);
  void end_fetch(core::NodeId node);

  std::map<core::NodeId, Node> nodes_;
  std::set<core::MemberId> known_lost_;  // a MemberLost of them was delivered to this coordinator
  std::map<std::pair<core::Generation, std::uint64_t>, std::set<core::MemberId>> votes_;
  std::optional<core::Reply> reply_;
};

}  // namespace regroup::membership
