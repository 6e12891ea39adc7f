// What the coordinator knows of each process it started, and the back-off that keeps a crashing program from
// being restarted in a hot loop.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/message.h"
#include "core/world.h"
#include "elastic/membership/membership.h"

namespace regroup::membership {

struct Record : Member {
  core::TimePoint since{};                     // its process was asked for; of a lost one: its loss
  std::uint64_t warm_order = 0;                // 0: was never ready
  std::uint32_t first_rank = 0;                // RANK at its start
  bool reaped = false;                         // the process is gone, `status` is known
  bool drained = false;                        // stands at a boundary for good
  bool dismissed = false;                      // we ended it: it is neither replaced nor counted as a failure
  bool kill_asked = false;                     // by a KillRequest
  std::optional<core::TimePoint> kill_at;      // SIGKILL if it still runs then
  std::optional<core::TimePoint> suspected{};  // last word of another member that it cannot be reached
  std::int32_t status = 0;                     // as a shell would give it: 128 + signal
  core::WorldMember place;                     // in the newest World
  core::StateWord word;                        // this and what follows as last reported
  bool proved = false;
  core::Step learned = 0;     // what it may have applied, once it has ...
  bool caught_up = false;     // ... caught up
  std::uint32_t lessons = 0;  // that failed
  core::Step step = 0;
  double loss = 0.0;
  std::uint64_t reports = 0;  // how many have come: who looks twice sees whether it is a new one

  [[nodiscard]] bool in_world() const { return state >= MemberState::kActive && state <= MemberState::kLost; }
  [[nodiscard]] bool lives_in_world() const { return in_world() && state != MemberState::kLost; }
  // Of its place in the World: it had the state when that was formed, or has proved it since.
  [[nodiscard]] bool has_state() const { return proved || !(place.needs_state || place.replays); }
};

class MemberTable {
 public:
  Record& add(core::MemberId id, core::NodeId node, core::TimePoint now);
  [[nodiscard]] Record* find(core::MemberId id);
  [[nodiscard]] std::map<core::MemberId, Record>& all() { return records_; }
  [[nodiscard]] const std::map<core::MemberId, Record>& all() const { return records_; }

  // How many are in a state from `first` to `last`.
  [[nodiscard]] std::uint32_t count(MemberState first, MemberState last) const;
  [[nodiscard]] std::uint32_t count(MemberState state) const { return count(state, state); }
  // Those that take part in the World and are to stay, are warm, or will be.
  [[nodiscard]] std::uint32_t staying() const;
  // Those in the World that stay, and of these those that have the state.
  [[nodiscard]] std::uint32_t staying_active() const;
  [[nodiscard]] std::uint32_t holders() const;
  [[nodiscard]] std::uint32_t processes() const;  // not reaped
  [[nodiscard]] bool any_finished() const;
  [[nodiscard]] std::map<core::NodeId, std::uint32_t> processes_by_node() const;
  [[nodiscard]] core::MemberId next_id() const;  // above every one ever seen or reserved
  void reserve_ids(core::MemberId below) { reserved_below_ = std::max(reserved_below_, below); }
  // For decide(): the members of `world` in rank order, then the rest.
  [[nodiscard]] Roster roster(const core::World& world, core::TimePoint below_min_since) const;
  [[nodiscard]] std::string ids_of_living() const;  // "0, 2, 5"
  // The first with an abnormal exit status among those that died unasked at or after `since`, or null.
  [[nodiscard]] const Record* first_failure(core::TimePoint since) const;

 private:
  std::map<core::MemberId, Record> records_;  // never erased: ids are never reused
  core::MemberId reserved_below_ = 0;
};

// When the next replacement may start: 0.1 s after a failure, doubled up to 10 s while failures follow each
// other without progress.
class Backoff {
 public:
  void failed(core::TimePoint now);
  void start_failed(core::TimePoint now) {
    ++failed_starts_;
    failed(now);
  }
  void became_ready() { failed_starts_ = 0; }
  void progressed() { failures_ = 0; }
  void reset() { *this = Backoff(); }
  [[nodiscard]] core::TimePoint not_before() const { return not_before_; }
  [[nodiscard]] bool given_up() const { return failed_starts_ >= kMostFailedStarts; }

  static constexpr std::uint32_t kMostFailedStarts = 3;

 private:
  std::uint32_t failures_ = 0;
  std::uint32_t failed_starts_ = 0;  // in a row, died before Ready
  core::TimePoint not_before_{};
};

}  // namespace regroup::membership
