// The entries of the coordinator's journal, from which a restarted coordinator recovers. Plain
// data; docs/reference/formats/journal.md has the bytes.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "membership/coordinator/refused_devices.h"
#include "membership/coordinator/restart_budget.h"
#include "membership/membership.h"
#include "proto/world.h"

namespace regroup::membership {

// The wanted number of members, and the members of the World that are not simply active.
struct Intent {
  struct Mark {
    proto::MemberId member = 0;
    MemberState state = MemberState::kActive;  // kActive to kLost
    bool leave_wanted = false;
    bool operator==(const Mark&) const = default;
  };

  base::TimePoint began{};          // when the job began
  std::uint32_t target = 0;         // --initial-size, or the size after the last `resize` or notice
  std::uint32_t desired = 0;        // the target less the lost members that are not replaced
  std::uint32_t restarts = 0;       // relaunches so far
  proto::MemberId next_member = 0;  // ids below this may be in use
  proto::MemberId first_member = 0;  // first id of the present launch
  std::uint32_t said = 0;  // the requested target, without leased slots; 0: none was requested
  std::vector<Mark> marks;
  bool operator==(const Intent&) const = default;
};

// An event of the job with its reason, for `regroup status`.
struct JobEvent {
  base::TimePoint at{};
  std::string text;
  bool operator==(const JobEvent&) const = default;
};

using JournalEntry = std::variant<proto::World, Intent, JobEvent, FailureStreak, RefusedDevices>;

inline constexpr std::size_t kMostSentences = 20;

// What a restarted coordinator needs of a journal: the newest World, intent, failure row and
// refused GPUs.
struct JournaledState {
  std::optional<proto::World> world;
  std::optional<Intent> intent;
  std::deque<JobEvent> sentences;  // the last kMostSentences
  FailureStreak failures;          // length 0: none
  RefusedDevices refused;

  void add(JournalEntry entry) {
    if (auto* newer = std::get_if<proto::World>(&entry)) world = std::move(*newer);
    if (auto* newer = std::get_if<Intent>(&entry)) intent = std::move(*newer);
    if (auto* newer = std::get_if<FailureStreak>(&entry)) failures = std::move(*newer);
    if (auto* newer = std::get_if<RefusedDevices>(&entry)) refused = std::move(*newer);
    if (auto* newer = std::get_if<JobEvent>(&entry)) sentences.push_back(std::move(*newer));
    if (sentences.size() > kMostSentences) sentences.pop_front();
  }
};

}  // namespace regroup::membership
