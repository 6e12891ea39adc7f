// Go-back-N keeps nothing that arrives after a gap: the sender retransmits all messages after the
// missing one.
#include "launcher/agent/reliable_session.h"

#include <utility>

namespace regroup::agent {

std::uint64_t ReliableSession::enqueue(Bytes message, bool answered) {
  unacked_bytes_ += message->size();
  unacked_.push_back({++sent_, std::move(message), answered});
  return sent_;
}

void ReliableSession::acknowledge(std::uint64_t number) {
  while (!unacked_.empty() && unacked_.front().number <= number) {
    unacked_bytes_ -= unacked_.front().message->size();
    unacked_.pop_front();
  }
}

bool ReliableSession::accept(std::uint64_t number, std::size_t bytes) {
  if (number != accepted_ + 1) return false;
  accepted_ = number;
  bytes_since_ack_ += bytes;
  return true;
}

std::optional<std::uint64_t> ReliableSession::ack_due() {
  if (accepted_ - acked_ < kAckMessages && bytes_since_ack_ < kAckBytes) return std::nullopt;
  acked_ = accepted_;
  bytes_since_ack_ = 0;
  return acked_;
}

}  // namespace regroup::agent
