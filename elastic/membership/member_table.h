// What the coordinator knows of each process it started.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/message.h"
#include "core/world.h"
#include "elastic/membership/membership.h"

namespace regroup::membership {

struct MemberInfo : Member {
  core::TimePoint since{};                     // its process was asked for; of a lost one: its loss
  std::uint64_t warm_order = 0;                // 0: was never ready
  std::uint32_t first_rank = 0;                // RANK at its start
  bool reaped = false;                         // the process is gone, `status` is known
  bool drained = false;                        // stands at a boundary for good
  bool dismissed = false;                      // we ended it: it is neither replaced nor counted as a failure
  bool kill_asked = false;                     // by a KillRequest, or since it stood still
  bool stood_still = false;                    // and the others waited for it
  std::optional<core::TimePoint> kill_at;      // SIGKILL if it still runs then
  std::optional<core::TimePoint> suspected{};  // last word of another member that it cannot be reached
  std::int32_t status = 0;                     // as a shell would give it: 128 + signal
  std::uint32_t restart_slot = 0;              // of RestartBudget
  bool charged = true;                         // its end counts there, or need not: false from its loss on
  core::TimePoint entered{};                   // its first World ...
  core::Step entered_at = 0;                   // ... which went on after that step
  core::Failure failure;                       // as it, or its agent, said it
  core::WorldMember entry;                     // in the newest World ...
  int rank = -1;                               // ... and its rank there; -1: it is not in it
  core::StateWord word;                        // this and what follows as last reported
  bool proved = false;
  core::Step caught_up_to = 0;  // what it may have applied, once it has ...
  bool caught_up = false;       // ... caught up
  std::uint32_t failed_transfers = 0;
  core::Step step = 0;
  double loss = 0.0;
  std::uint64_t reports = 0;  // how many have come: who looks twice sees whether it is a new one

  [[nodiscard]] bool in_world() const { return state >= MemberState::kActive && state <= MemberState::kLost; }
  [[nodiscard]] bool lives_in_world() const { return in_world() && state != MemberState::kLost; }
  // Of its place in the World: it had the state when that was formed, or has proved it since.
  [[nodiscard]] bool has_state() const { return proved || !(entry.needs_state || entry.replays); }
  // In the World, without the results that it was to have from its state transfer.
  [[nodiscard]] bool lacks_results() const { return lives_in_world() && entry.replays && !proved; }

 private:
  friend class MemberTable;
  mutable std::uint32_t counted_ = 0;  // its traits
};

// Counts are kept as records change, so that a question costs the same among ten thousand members as among
// ten. Who gets a record to change may do so until settle().
class MemberTable {
 public:
  MemberInfo& add(core::MemberId id, core::NodeId node, core::TimePoint now);
  [[nodiscard]] MemberInfo* edit(core::MemberId id);               // to change it
  [[nodiscard]] const MemberInfo* find(core::MemberId id) const;   // null, as above: never seen
  [[nodiscard]] std::map<core::MemberId, MemberInfo>& edit_all();  // to change them
  [[nodiscard]] const std::map<core::MemberId, MemberInfo>& all() const { return members_; }
  // Ids of all that were ever started on `node`.
  [[nodiscard]] const std::set<core::MemberId>& on_node(core::NodeId node) const;
  // No record that was handed out is changed any more.
  void end_edits();
  // Grows when an answer below may have changed.
  [[nodiscard]] std::uint64_t version() const { return count(), version_; }

  // How many are in a state from `first` to `last`.
  [[nodiscard]] std::uint32_t count(MemberState first, MemberState last) const;
  [[nodiscard]] std::uint32_t count(MemberState state) const { return count(state, state); }
  // Those that take part in the World and are to stay, are warm, or will be.
  [[nodiscard]] std::uint32_t staying() const { return of(kStays); }
  // Those in the World that stay, and of these those that have the state.
  [[nodiscard]] std::uint32_t staying_active() const { return of(kStaysActive); }
  [[nodiscard]] std::uint32_t holders() const { return of(kHolds); }
  [[nodiscard]] std::uint32_t processes() const { return of(kRuns); }  // not reaped
  [[nodiscard]] bool any_finished() const { return of(kFinished) > 0; }
  // In the World, alive, and has not finished.
  [[nodiscard]] bool any_unfinished() const { return of(kUnfinished) > 0; }
  [[nodiscard]] std::uint32_t learning() const { return of(kLearns); }  // warm
  [[nodiscard]] bool any_lacks_results() const { return of(kLacksResults) > 0; }
  [[nodiscard]] bool any_suspected() const { return of(kSuspected) > 0; }  // and lives in the World
  // Active, and leave_wanted.
  [[nodiscard]] const std::set<core::MemberId>& waiting_to_leave() const { return count(), waiting_; }
  [[nodiscard]] MemberCounts counts(const core::World& world) const;
  // No kill_at is before this; none at all: TimePoint::max(). earliest_kill_is() corrects it.
  [[nodiscard]] core::TimePoint earliest_kill() const { return count(), earliest_kill_; }
  void earliest_kill_is(core::TimePoint at) { earliest_kill_ = at; }
  // Nodes on which the number of processes has changed since the last call, with that number.
  [[nodiscard]] std::map<core::NodeId, std::uint32_t> take_loads();
  [[nodiscard]] core::MemberId next_id() const;  // above every one ever seen or reserved
  void reserve_ids(core::MemberId below) { reserved_below_ = std::max(reserved_below_, below); }
  [[nodiscard]] core::MemberId reserved_below() const { return reserved_below_; }
  // For decide(): the members of `world` in rank order, then the rest.
  [[nodiscard]] Roster roster(const core::World& world, core::TimePoint below_min_since) const;
  // By RestartBudget's slots: whether a member stays, or starts, in it.
  [[nodiscard]] std::vector<bool> used_slots() const;
  [[nodiscard]] std::string ids_of_living() const;  // "0, 2, 5"
  // The first with an abnormal exit status among those that died unasked at or after `since`, or null.
  [[nodiscard]] const MemberInfo* first_failure(core::TimePoint since) const;

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
    kSuspected,
    kWaits,
    kTraits
  };
  struct OnNode {
    std::set<core::MemberId> members;
    std::uint32_t processes = 0;
  };
  [[nodiscard]] static std::uint32_t traits_of(const MemberInfo& r);
  [[nodiscard]] std::uint32_t of(Trait trait) const { return count(), counts_[trait]; }
  void count() const;
  void count(const MemberInfo& r) const;

  std::map<core::MemberId, MemberInfo> members_;  // never erased: ids are never reused
  core::MemberId reserved_below_ = 0;
  std::vector<const MemberInfo*> edited_;  // may have changed since they were counted
  bool all_edited_ = false;
  // What was counted.
  mutable std::array<std::uint32_t, kTraits> counts_{};
  mutable std::uint64_t version_ = 0;
  mutable core::TimePoint earliest_kill_ = core::TimePoint::max();
  mutable std::map<core::NodeId, OnNode> nodes_;
  mutable std::set<core::NodeId> load_changed_;
  mutable std::set<core::MemberId> waiting_;
};

}  // namespace regroup::membership
