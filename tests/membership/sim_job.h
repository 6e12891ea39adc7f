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

namespace regroup::membership {

struct SimMember {
  core::Start start;
  bool alive = true;
  bool asked = false;  // sent its Join
  std::optional<core::SlotIndex> slot;
  bool ready = false;
  bool drained = false;
  std::string refused;
  core::World world;  // it has entered
  core::Generation seen = 0;
  bool settled = false;  // has, or has given, the state in this world
  core::Step applied = 0;
};

struct SimOptions {
  Policy policy{.min = 2, .max = 4, .target = 3, .slots = 4, .shards = 8};
  std::uint32_t lines = 6;
  core::Step steps = 6;
  std::set<core::MemberId> never_join;                 // plain programs
  std::map<core::MemberId, std::string> models;        // others have "m"
  std::map<core::MemberId, std::string> fingerprints;  // others have "f"
  bool any_fingerprint = false;
};

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

  // One move of each kind; false if there was nothing to do.
  bool deliver_to_agent();
  bool deliver_to_coordinator();
  bool report_death();
  bool act(SimMember& m);
  void pass(core::Duration time);

  void kill(core::MemberId id, int signal = 9);  // its process dies here and now
  void exit(core::MemberId id, int status);
  core::Reply ask(const core::Body& request);    // as a control command
  void restart_coordinator(bool lose_messages);  // from the journal

  SimMember& member(core::MemberId id) { return members.at(id); }
  core::Line& line(core::MemberId id) { return agent.arena().line(*member(id).slot); }
  core::Generation generation() const { return journal ? journal->generation : 0; }
  bool heard(const std::string& words) const;  // some sentence said to the user contains them

  const SimOptions options;
  core::TimePoint now{std::chrono::seconds(1000)};
  core::Incarnation incarnation = 1;
  std::optional<Coordinator> coordinator;
  AgentCore agent;
  std::map<core::MemberId, SimMember> members;
  std::optional<core::World> journal;  // the newest in it
  Past past;                           // all that it holds
  std::vector<core::World> worlds;
  std::optional<Done> end;
  std::vector<std::string> says;
  std::vector<std::string> broken;  // invariants that did not hold; every test expects none

 private:
  struct Death {
    core::MemberId id;
    bool line;  // the futex of its line fired; else the process was reaped
    int status, signal;
  };
  void perform(Effects effects);
  void perform(AgentEffects effects);
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
  bool all_sealed(const std::vector<core::Seat>& owners, core::Step step) const;
  void committed(SimMember& m, core::Position at);

  std::deque<core::Message> to_agent_, to_coordinator_;
  std::deque<Death> deaths_;
  std::set<core::MemberId> known_lost_;  // a MemberLost of them was delivered to this coordinator
  std::map<std::pair<core::Generation, std::uint64_t>, std::set<core::MemberId>> votes_;
  std::optional<core::Reply> reply_;
};

}  // namespace regroup::membership
