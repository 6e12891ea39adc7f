// Simulates a whole job in one process, without a clock: the real Coordinator, AgentCore and Arena,
// and simulated members that call the functions of shmem/, one small move at a time. The test
// chooses which party moves next, so that it can run and repeat any schedule.
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

  // Lets all parties move in turn until `done`; each round takes a simulated millisecond. Returns
  // false after ten simulated minutes.
  bool run_until(const std::function<bool()>& done);
  bool run_to_end() {
    return run_until([&] { return end.has_value(); });
  }
  // Runs until World g has `size` members and all of them train.
  bool steady(proto::Generation g, std::uint32_t size);
  // Runs until all members alive have applied `step`.
  bool reach(proto::Step step);
  // Reports all deaths to the agents, but delivers nothing to the coordinator.
  void bury();

  // Each function makes one move, on the given node or on the first node that can. Returns false if
  // no move was possible.
  bool deliver_to_agent(std::optional<proto::NodeId> node = {});
  bool deliver_to_coordinator(std::optional<proto::NodeId> node = {});
  bool report_death(std::optional<proto::NodeId> node = {});
  bool act(SimMember& m);
  bool attend(proto::NodeId node);  // the agent checks its state transfer
  void pass(base::Duration time);

  void kill(proto::MemberId id, int signal = 9);
  void exit(proto::MemberId id, int status);
  void fail(const proto::Failure& failure) { from_member(failure.member, failure); }
  proto::Reply ask(const proto::Body& request);  // sends a control command
  void restart_coordinator(bool lose_messages);  // from the journal

  // For jobs with hosts. A lost host continues to run, unseen: its members reach those of other
  // hosts, but no message of its agent arrives.
  proto::NodeId add_host(std::uint32_t slots, bool leased = false);
  void lose_host(proto::NodeId node);
  void resize_host(proto::NodeId node, std::uint32_t slots, bool for_now = false);
  [[nodiscard]] std::size_t living_on(proto::NodeId node) const;
  [[nodiscard]] std::vector<proto::NodeId> hosts() const;  // those not lost
  // True if some sources, but not all, have sent their parts of the state transfer to `node`.
  [[nodiscard]] bool transfer_is_halfway(proto::NodeId node) const;

  SimMember& member(proto::MemberId id) { return members.at(id); }
  AgentCore& agent(proto::NodeId node = 0) { return nodes_.at(node).agent; }
  const shmem::Arena& arena_of(const SimMember& m) { return agent(m.node).arena(); }
  shmem::MemberSlot& member_slot(proto::MemberId id) {
    return arena_of(member(id)).member_slot(*member(id).slot);
  }
  proto::Generation generation() const { return journal ? journal->generation : 0; }
  bool heard(const std::string& words) const;  // a message to the user contains `words`

  const SimOptions options;
  base::TimePoint now{std::chrono::seconds(1000)};
  proto::Incarnation incarnation = 1;
  std::optional<Coordinator> coordinator;
  std::map<proto::MemberId, SimMember> members;
  std::optional<proto::World> journal;  // the newest World in the journal
  JournaledState past;                  // everything in the journal
  std::vector<proto::World> worlds;
  std::optional<Done> end;
  std::vector<std::string> says;
  std::uint64_t transfers_read = 0, results_replayed = 0;
  std::size_t most_sources = 0;     // of a state transfer between nodes
  std::vector<std::string> broken;  // invariants that did not hold; every test expects none

 private:
  struct Death {
    proto::MemberId id;
    bool by_futex;  // found by the futex of the member's slot; otherwise by reaping the process
    int status, signal;
  };
  struct Node {
    AgentCore agent;
    std::uint32_t slots = 0;
    bool leased = false, for_now = false;
    bool up = true;
    std::deque<proto::Message> to_agent{}, to_coordinator{};
    std::deque<Death> deaths{};
    std::optional<proto::StartTarget> fetch{};  // the state transfer to this node that runs
    std::set<proto::NodeId> gave{};             // sources that have sent their parts of it
    TransferTarget::Received received{};        // what has arrived of it
  };
  // Returns the first node, or `node` if given, whose queue is not empty; null if there is none.
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
  bool meet(SimMember& m);  // exchanges addresses; true when `m` knows all
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
  std::set<proto::MemberId> known_lost_;  // this coordinator has received their MemberLost
  std::map<std::pair<proto::Generation, std::uint64_t>, std::set<proto::MemberId>> votes_;
  std::optional<proto::Reply> reply_;
};

}  // namespace regroup::membership
