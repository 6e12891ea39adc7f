// Counts what it keeps.
#include "collective/ucx/mailbox.h"

#include <fmt/format.h>

namespace regroup::collective {
namespace {

std::size_t bytes_here(const Letter& letter) { return letter.fetch ? 0 : letter.bytes; }

}  // namespace

core::Status Mailbox::put(Letter letter) {
  const LetterKey& key = letter.head.key;
  Unread& unread = unread_[static_cast<std::size_t>(key.from)];
  letter.counts = key.kind != LetterKind::kMessage || unread.asked == 0;
  if (letter.counts && (unread.letters >= kLetters || unread.bytes >= kBytes)) {
    return {core::Code::kResourceExhausted,
            fmt::format("rank {} has {} letters of {} bytes here that nobody has waited for, and sends more",
                        key.from, unread.letters, unread.bytes)};
  }
  if (letter.counts) {
    unread.letters += 1;
    unread.bytes += bytes_here(letter);
  } else {
    unread.asked -= 1;
  }
  letters_.emplace(key, letter);
  return {};
}

Letter* Mailbox::find(const LetterKey& key) {
  const auto found = letters_.lower_bound(key);
  return found != letters_.end() && found->first == key ? &found->second : nullptr;
}

Letter Mailbox::remove(Letters::iterator at) {
  const Letter letter = at->second;
  letters_.erase(at);
  if (!letter.counts) return letter;
  Unread& unread = unread_[static_cast<std::size_t>(letter.head.key.from)];
  unread.letters -= 1;
  unread.bytes -= bytes_here(letter);
  return letter;
}

std::optional<Letter> Mailbox::remove_any() {
  return letters_.empty() ? std::nullopt : std::optional(remove(letters_.begin()));
}

void Mailbox::drop_calls(const LineId& line, std::uint64_t until) {
  for (auto at = letters_.lower_bound({line, LetterKind::kCall, 0, 0, 0});
       at != letters_.end() && at->first < LetterKey{line, LetterKind::kCall, until + 1, 0, 0};) {
    static_cast<void>(remove(at++));
  }
}

}  // namespace regroup::collective
