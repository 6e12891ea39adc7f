// The letters that have come to a member and were not taken yet. What one member may have in it is bounded,
// so that one that runs ahead, or away, cannot fill the others' memory. Their data is UCX's: who takes a
// letter out gives it back. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "collective/ucx/letter.h"
#include "core/status.h"

namespace regroup::collective {

class Mailbox {
 public:
  // Of one member, before it is too much. A member is ahead by one operation of each communicator at most: of
  // that it sends some letters of up to 1 MiB, and one of any size to each member; and it has kAsked messages
  // asked for. So the next letter may have any size, and these are many times as much as what is not amiss.
  static constexpr std::size_t kLetters = std::size_t{64} << 10;
  static constexpr std::size_t kBytes = std::size_t{256} << 20;
  // Messages that a communicator asks a member for at a time.
  static constexpr std::uint64_t kAsked = 1024;

  explicit Mailbox(std::size_t ranks) : unread_(ranks) {}

  // `from` has been asked for a message, which does not count: it has the size of memory that waits for it.
  void ask(int from) { unread_[static_cast<std::size_t>(from)].asked += 1; }
  // kResourceExhausted names who has too much here; then the letter is not kept.
  [[nodiscard]] core::Status put(Letter letter);
  // The first letter with this key, or null. Stays until it is removed.
  [[nodiscard]] Letter* find(const LetterKey& key);
  // Takes out the one that find() finds.
  Letter remove(const LetterKey& key) { return remove(letters_.lower_bound(key)); }
  [[nodiscard]] std::optional<Letter> remove_any();
  // Drops the roll calls of a communicator with a number up to `until`; they carry no data.
  void drop_calls(const LineId& line, std::uint64_t until);
  // Calls `use(letter)` for those of a kind with a number from `number` on, in the order of their keys, until
  // it returns false.
  template <class Use>
  void for_each(const LineId& line, LetterKind kind, std::uint64_t number, Use use) const {
    auto it = letters_.lower_bound({line, kind, number, 0, 0});
    while (it != letters_.end() && it->first.line == line && it->first.kind == kind && use(it->second)) ++it;
  }

 private:
  using Letters = std::multimap<LetterKey, Letter>;
  struct Unread {  // of one member
    std::size_t letters = 0;
    std::size_t bytes = 0;
    std::uint64_t asked = 0;
  };
  Letter remove(Letters::iterator at);

  Letters letters_;
  std::vector<Unread> unread_;  // by rank
};

}  // namespace regroup::collective
