// As go-back-N has it: a gap is not kept, since who says something again says all that follows, too.
#include "launcher/node/conversation.h"

#include <utility>

namespace regroup::node {

std::uint64_t Conversation::say(Bytes message, bool answered) {
  kept_ += message->size();
  unheard_.push_back({++said_, std::move(message), answered});
  return said_;
}

void Conversation::heard(std::uint64_t number) {
  while (!unheard_.empty() && unheard_.front().number <= number) {
    kept_ -= unheard_.front().message->size();
    unheard_.pop_front();
  }
}

bool Conversation::take(std::uint64_t number, std::size_t bytes) {
  if (number != taken_ + 1) return false;
  taken_ = number;
  untold_bytes_ += bytes;
  return true;
}

std::optional<std::uint64_t> Conversation::due() {
  if (taken_ - told_ < kTellMessages && untold_bytes_ < kTellBytes) return std::nullopt;
  told_ = taken_;
  untold_bytes_ = 0;
  return told_;
}

}  // namespace regroup::node
