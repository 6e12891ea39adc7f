// What a coordinator writes down for its successor, as plain data. docs/formats/journal.md has the bytes.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/clock.h"
#include "core/world.h"
#include "elastic/membership/membership.h"
#include "elastic/membership/restart_budget.h"

namespace regroup::membership {

// How many members are wanted, and how the members of the World differ from plainly taking part.
struct Intent {
  struct Mark {
    core::MemberId member = 0;
    MemberState state = MemberState::kActive;  // kActive to kLost
    bool leave_wanted = false;
    bool operator==(const Mark&) const = default;
  };

  core::TimePoint began{};          // the job
  std::uint32_t target = 0;         // --start, or what `resize` or a notice made of it
  std::uint32_t desired = 0;        // less those that are not replaced
  std::uint32_t restarts = 0;       // relaunches so far
  core::MemberId next_member = 0;   // ids below may have been given
  core::MemberId first_member = 0;  // of the present launch; those below belong to earlier ones
  std::uint32_t said = 0;           // the target without what hosts lend; 0: nobody has said one
  std::vector<Mark> marks;
  bool operator==(const Intent&) const = default;
};

// Why something happened, for `regroup status`.
struct Sentence {
  core::TimePoint at{};
  std::string text;
  bool operator==(const Sentence&) const = default;
};

using JournalEntry = std::variant<core::World, Intent, Sentence, FailureRow>;

inline constexpr std::size_t kMostSentences = 20;

// All that a successor needs of a journal: of Worlds, intents and rows of failures the newest.
struct Past {
  std::optional<core::World> world;
  std::optional<Intent> intent;
  std::deque<Sentence> sentences;  // the last kMostSentences
  FailureRow failures;             // length 0: none

  void add(JournalEntry entry) {
    if (auto* newer = std::get_if<core::World>(&entry)) world = std::move(*newer);
    if (auto* newer = std::get_if<Intent>(&entry)) intent = std::move(*newer);
    if (auto* newer = std::get_if<FailureRow>(&entry)) failures = std::move(*newer);
    if (auto* newer = std::get_if<Sentence>(&entry)) sentences.push_back(std::move(*newer));
    if (sentences.size() > kMostSentences) sentences.pop_front();
  }
};

}  // namespace regroup::membership
