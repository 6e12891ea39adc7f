// This process's part in the job: its line in the arena, the generation it is in, and the moves of section 3
// and 4 of docs/architecture.md: join, open, commit, leave. All calls come from the one training thread,
// which holds the line.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/arena.h"
#include "core/clock.h"
#include "core/message.h"
#include "core/status.h"
#include "core/world.h"
#include "elastic/agent_link.h"
#include "elastic/fixed_world.h"
#include "elastic/options.h"
#include "elastic/term_notice.h"

namespace regroup::elastic {

class Participant {
 public:
  // Joins through the agent of `env`; or through one of the ranks of the launch that this process belongs to;
  // or makes a world of one. Returns when the line is ours; no World yet.
  [[nodiscard]] static core::Result<std::unique_ptr<Participant>> connect(const Environment& env,
                                                                          core::Join declaration,
                                                                          core::Duration timeout);

  [[nodiscard]] core::Arena& arena() { return arena_; }
  [[nodiscard]] core::MemberSlot& line() { return arena_.member_slot(slot_); }
  [[nodiscard]] core::Seat seat() const { return {arena_.spec().node, slot_}; }
  [[nodiscard]] const core::World& world() const { return world_; }  // generation 0 before the first
  [[nodiscard]] int rank() const { return world_.rank_of(seat()); }
  [[nodiscard]] const core::WorldMember& self() const {
    return world_.members[static_cast<std::size_t>(rank())];
  }
  [[nodiscard]] std::uint64_t seed() const { return seed_; }
  [[nodiscard]] std::uint32_t shards() const { return arena_.spec().shards; }
  [[nodiscard]] bool revoked() const;

  // Sleeps until `ready()`. kRevoked: the generation is over; kLeft: excluded, with the reason;
  // kDeadlineExceeded: `what` took longer than the timeout; kPeerLost: the agent is gone.
  [[nodiscard]] core::Status wait(const std::function<bool()>& ready, const std::string& what);
  // So, but whatever becomes of the generation. False: the deadline has passed, or the agent is gone.
  [[nodiscard]] bool pause(const std::function<bool()>& ready, core::TimePoint deadline);
  // While this member waits for others, in wait() or for a World: once `asked()`, which must be quick, it
  // does `answer()`; after which `asked()` is false.
  void while_waiting(std::function<bool()> asked, std::function<void()> answer);

  enum class Joined {
    kInWorld,        // in the newest World, which goes on where this member stands
    kCommittedOpen,  // the transaction that was open here is committed: apply it, then regroup again
  };
  // Leaves the present generation and waits for the next World. kLeft if this member is in none any more.
  [[nodiscard]] core::Result<Joined> regroup();
  // The same for who is in no World yet. Nothing: `other()` came first.
  [[nodiscard]] core::Result<std::optional<Joined>> regroup_or(const std::function<bool()>& other);

  // committed -> open(next). kRevoked: regroup first.
  [[nodiscard]] core::Status open(core::Position next);
  // open -> committed, once all voted. kRevoked: regroup, which tells whether it happened.
  [[nodiscard]] core::Status commit();

  [[nodiscard]] bool asked_to_leave() {
    return line().leave_request.load(std::memory_order_acquire) != core::kStay;
  }
  // This thread will touch no buffer of any generation again: nobody need wait for it.
  void leave_all_generations();
  // How others reach this member in the generation it is in, and it them: opaque. None blocks; when contacts
  // come the agent rings.
  [[nodiscard]] core::Status tell_contact(std::span<const std::byte> address);
  [[nodiscard]] std::optional<std::vector<std::byte>> contact_of(core::MemberId member);
  // Another member does not answer.
  void suspect(core::MemberId member, const std::string& why);
  // Members hold different states. Tells the agent and waits for the end that the job comes to; returns after
  // some seconds if none comes. Rank 0 tells at once, the others if it could not.
  void end_diverged(const std::string& why);

  // Tells the agent that everything is applied and nothing more will be opened.
  [[nodiscard]] core::Status announce_drained();
  // It stands at its last boundary, as SIGTERM asked: a further one says nothing new.
  void heed_term(bool heeded) { term_notice_.heed(heeded); }

 private:
  // `takes_notice`: SIGTERM is a notice; else it is what the program made of it.
  Participant(core::Arena arena, core::SlotIndex slot, std::uint64_t seed, AgentLink link,
              core::Duration timeout, bool takes_notice);

  [[nodiscard]] static core::Result<std::unique_ptr<Participant>> alone(const Environment& env,
                                                                        const core::Join& join,
                                                                        core::Duration timeout,
                                                                        const std::string& why);
  [[nodiscard]] static core::Result<std::unique_ptr<Participant>> through(AgentLink link,
                                                                          core::Join declaration,
                                                                          core::Duration timeout,
                                                                          bool takes_notice);
  // One attempt to enter `world`; nothing: it was revoked meanwhile.
  [[nodiscard]] core::Result<std::optional<Joined>> join(core::World world);
  [[nodiscard]] bool newer_world();
  [[nodiscard]] core::Status await_newer_world(const std::function<bool()>& other);
  // Takes what the agent has said. kLeft, with the reason, once it has let this member go; kPeerLost.
  [[nodiscard]] core::Status hear_agent();
  void add_contacts(core::Contacts contacts);
  [[nodiscard]] core::Status excluded();
  // Brings the word of a member without state to "committed up to where `world` resumes, revoked": ready to
  // join.
  [[nodiscard]] bool enter_as_newcomer(const core::World& world);
  [[nodiscard]] core::StateWord state() { return core::load_state<core::RealPolicy>(line().state); }

  std::unique_ptr<WorldServer> server_;      // of a World of fixed size, in one of its ranks
  std::unique_ptr<WorldLease> world_lease_;  // in each of them
  core::Arena arena_;
  const core::SlotIndex slot_;
  const std::uint64_t seed_;
  const core::Duration timeout_;
  AgentLink link_;
  TermNotice term_notice_;
  std::function<bool()> asked_ = [] { return false; };
  std::function<void()> answer_;
  core::World world_;
  core::Generation met_ = 0;  // of contacts_
  std::map<core::MemberId, std::vector<std::byte>> contacts_;
  core::Status let_go_;        // kLeft, once the agent said so
  core::Generation seen_ = 0;  // newest World that turned out not to contain this member
};

}  // namespace regroup::elastic
