// The coordinator's table of all members that were ever started, with counts by state.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "membership/coordinator/journal_entry.h"
#include "membership/membership.h"
#include "proto/message.h"
#include "proto/world.h"

namespace regroup::membership {

// Who ends a member's process. A later one in this order replaces an earlier one, never the
// reverse: a member that hung and is then killed by the user too has hung.
enum class EndedBy : std::uint8_t {
  kItself,      // or a cause outside the job
  kUser,        // `regroup kill-member`: not a failure
  kHang,        // --on-hang: it kept the others waiting, which is a failure
  kCoordinator  // it was dismissed: not replaced, not a failure
};

// What the coordinator knows of a member. Its states are enums: MemberState (its life), CatchUp
// (how it gets the state) and EndedBy; whether its process has ended is whether it has an exit
// status. The bools are facts that are independent of these and of each other: `finished`,
// `drained` and `proved` are what the member says, and hold in several states (a drained member
// stays active while its state is needed), `leave_wanted` is a wish of the user or of a host, and
// `failure_due` is the coordinator's own note.
struct MemberInfo : Member {
  base::TimePoint since{};       // when its start was requested; if lost, when it was lost
  std::uint64_t warm_order = 0;  // 0: never ready
  std::uint32_t first_rank = 0;  // RANK at its start
  bool drained = false;          // stopped at a step boundary
  EndedBy ended_by = EndedBy::kItself;
  std::optional<base::TimePoint> kill_at;  // SIGKILL if it still runs then
  std::optional<std::int32_t> status;      // of its process, as a shell gives it: 128 + signal
  std::uint32_t restart_slot = 0;          // of RestartBudget
  bool failure_due = false;                // lost; the failure is counted once its cause is known
  base::TimePoint entered{};               // its first World ...
  proto::Step entered_at = 0;              // ... which resumed after that step
  proto::Failure failure;                  // as it, or its agent, reported it
  proto::WorldMember entry;                // in the newest World ...
  int rank = -1;                           // ... and its rank there; -1: not in it
  proto::StateWord word;                   // this and what follows as last reported
  bool proved = false;                     // its copy of the state, or its replay
  proto::Step caught_up_to = 0;            // what it may have applied, if has_caught_up(catch_up)
  std::uint32_t failed_transfers = 0;
  proto::Step step = 0;
  std::optional<proto::PlaneFacts> planes;                 // empty: not known
  double loss = std::numeric_limits<double>::quiet_NaN();  // none
  std::uint64_t reports = 0;  // number of reports, so that a reader can tell a new one

  // Takes over what its agent reports of its slot. What the member has once said stays true.
  void take_report(const proto::SlotReport& slot);
  // Changes the state along kMemberTransitions, which must have that edge.
  void move_to(MemberState next);
  void catch_up_with(CatchUpEvent event) { catch_up = after(catch_up, event); }
  // Keeps the later of the two in the order of EndedBy.
  void set_ended_by(EndedBy by) { ended_by = std::max(ended_by, by); }

  [[nodiscard]] bool reaped() const { return status.has_value(); }  // its process has ended
  // As a shell gives it; 1 if the process failed in a way that leaves none, or still runs.
  [[nodiscard]] std::int32_t failed_status() const { return status.value_or(0) != 0 ? *status : 1; }
  // The job counts on it: it was neither asked to leave, nor has it finished, nor is it dead.
  [[nodiscard]] bool counted_on() const {
    return state <= MemberState::kActive && !leave_wanted && !finished;
  }

  [[nodiscard]] bool in_world() const {
    return state >= MemberState::kActive && state <= MemberState::kLost;
  }
  [[nodiscard]] bool lives_in_world() const { return in_world() && state != MemberState::kLost; }
  // It had the state when its World was formed, or has proved its copy since.
  [[nodiscard]] bool has_state() const { return proved || !(entry.needs_state || entry.replays); }
  // In the World, without the results that it was to have from its state transfer.
  [[nodiscard]] bool lacks_results() const { return lives_in_world() && entry.replays && !proved; }

 private:
  friend class MemberTable;
  mutable std::uint32_t counted_ = 0;  // its traits
};

// Counts are updated as members change, so that a query costs the same with ten thousand members as
// with ten. A reference from add(), edit() or edit_all() may be written until end_edits(). Not
// thread-safe.
class MemberTable {
 public:
  MemberInfo& add(proto::MemberId id, proto::NodeId node, base::TimePoint now);
  // Adds the members of the journaled World, as active ones.
  void restore(const proto::World& world);
  // Marks those of them that an earlier incarnation had marked, and reserves the ids that it may
  // have used. Marks of members that are no longer in the World are ignored.
  void restore(const Intent& intent);
  void save(Intent* intent) const;                                  // writes next_member and marks
  [[nodiscard]] MemberInfo* edit(proto::MemberId id);               // to change it
  [[nodiscard]] const MemberInfo* find(proto::MemberId id) const;   // null, as above: unknown
  [[nodiscard]] std::map<proto::MemberId, MemberInfo>& edit_all();  // to change them
  [[nodiscard]] const std::map<proto::MemberId, MemberInfo>& all() const { return members_; }
  // Ids of all that were ever started on `node`.
  [[nodiscard]] const std::set<proto::MemberId>& on_node(proto::NodeId node) const;
  // The caller writes to no reference any more that it got before.
  void end_edits();
  // Grows when the result of a query below may have changed.
  [[nodiscard]] std::uint64_t version() const { return count(), version_; }

  // The number of members in a state from `first` to `last`.
  [[nodiscard]] std::uint32_t count(MemberState first, MemberState last) const;
  [[nodiscard]] std::uint32_t count(MemberState state) const { return count(state, state); }
  // Members that are active and stay, are warm, or are starting.
  [[nodiscard]] std::uint32_t staying() const { return of(kStays); }
  // Active members that stay; those of them that have the state.
  [[nodiscard]] std::uint32_t staying_active() const { return of(kStaysActive); }
  [[nodiscard]] std::uint32_t holders() const { return of(kHolds); }
  [[nodiscard]] std::uint32_t processes() const { return of(kRuns); }  // not reaped
  [[nodiscard]] bool any_finished() const { return of(kFinished) > 0; }
  // True if a living member of the World has not finished.
  [[nodiscard]] bool any_unfinished() const { return of(kUnfinished) > 0; }
  [[nodiscard]] std::uint32_t learning() const { return of(kLearns); }  // warm
  [[nodiscard]] bool any_lacks_results() const { return of(kLacksResults) > 0; }
  // Active, and leave_wanted.
  [[nodiscard]] const std::set<proto::MemberId>& waiting_to_leave() const {
    return count(), waiting_;
  }
  [[nodiscard]] MemberCounts counts(const proto::World& world) const;
  // No kill_at is before this; none at all: TimePoint::max().
  [[nodiscard]] base::TimePoint earliest_kill() const { return count(), earliest_kill_; }
  // The members whose kill_at is not after `now`, in ascending order; it is reset.
  [[nodiscard]] std::vector<proto::MemberId> take_overdue(base::TimePoint now);
  // Nodes on which the number of processes has changed since the last call, with that number.
  [[nodiscard]] std::map<proto::NodeId, std::uint32_t> take_loads();
  [[nodiscard]] proto::MemberId next_id() const;  // above every one ever seen or reserved
  void reserve_ids(proto::MemberId below) { reserved_below_ = std::max(reserved_below_, below); }
  [[nodiscard]] proto::MemberId reserved_below() const { return reserved_below_; }
  // Ids below this are in the journal as used by this incarnation, so that a later one does not use
  // them again.
  void promise_below(proto::MemberId id) { promised_below_ = id; }
  [[nodiscard]] proto::MemberId promised_below() const { return promised_below_; }
  // For decide(): the members of `world` in rank order, then the rest.
  [[nodiscard]] Roster roster(const proto::World& world, base::TimePoint below_min_since) const;
  // By RestartBudget's slots: whether a member stays, or starts, in it.
  [[nodiscard]] std::vector<bool> used_slots() const;
  [[nodiscard]] std::uint32_t free_slot() const;    // the lowest one that none stays in
  [[nodiscard]] std::string ids_of_living() const;  // "0, 2, 5"
  // The member that was the first to end with an abnormal status, undismissed, at or after `since`;
  // or null.
  [[nodiscard]] const MemberInfo* first_failure(base::TimePoint since) const;

 private:
  enum Trait : std::uint8_t {  // the first are those of MemberState
    kStays = 7,
    kStaysActive,
    kHolds,
    kRuns,
    kFinished,
    kUnfinished,
    kBreaks,
    kLearns,
    kLacksResults,
    kWaits,
    kTraits
  };
  struct OnNode {
    std::set<proto::MemberId> members;
    std::uint32_t processes = 0;
  };
  [[nodiscard]] static std::uint32_t traits_of(const MemberInfo& r);
  [[nodiscard]] std::uint32_t of(Trait trait) const { return count(), counts_[trait]; }
  void count() const;
  void count(const MemberInfo& r) const;

  std::map<proto::MemberId, MemberInfo> members_;  // never erased: ids are never reused
  proto::MemberId reserved_below_ = 0;
  proto::MemberId promised_below_ = 0;
  std::vector<const MemberInfo*> edited_;  // may have changed since they were counted
  bool all_edited_ = false;
  // What was counted.
  mutable std::array<std::uint32_t, kTraits> counts_{};
  mutable std::uint64_t version_ = 0;
  mutable base::TimePoint earliest_kill_ = base::TimePoint::max();
  mutable std::map<proto::NodeId, OnNode> nodes_;
  mutable std::set<proto::NodeId> load_changed_;
  mutable std::set<proto::MemberId> waiting_;
};

}  // namespace regroup::membership
