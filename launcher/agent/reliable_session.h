// Reliable, ordered delivery between the controller and one agent whose messages travel through
// other agents, any of which may die with messages in its queues. Go-back-N: each side numbers its
// messages, keeps them until the other side acknowledges them, and accepts each number once, in
// order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

namespace regroup::agent {

// One end of a session. Pure state: it sends nothing itself. One thread at a time.
class ReliableSession {
 public:
  using Bytes = std::shared_ptr<const std::vector<std::byte>>;
  struct Sent {
    std::uint64_t number = 0;
    Bytes message;  // as encode() made it
    bool answered = false;
  };

  // Keeps `message` and returns its number, from 1 on. The caller sends it now or, if there is no
  // connection, when it retransmits unacked().
  std::uint64_t enqueue(Bytes message, bool answered);
  // The other side has accepted all messages up to `number`: they are dropped here.
  void acknowledge(std::uint64_t number);
  // The messages to retransmit on a new connection, in order.
  [[nodiscard]] const std::deque<Sent>& unacked() const { return unacked_; }
  // True if more than kMaxUnackedBytes are unacknowledged. A peer that follows the protocol never
  // causes that, since it acknowledges every kAckBytes; the caller must give up such a peer.
  [[nodiscard]] bool overfull() const { return unacked_bytes_ > kMaxUnackedBytes; }

  // True: the message with this number is the next one and is to be handled. False: it is a
  // duplicate, or one before it is missing and both will be retransmitted.
  [[nodiscard]] bool accept(std::uint64_t number, std::size_t bytes);
  // The last number that was accepted.
  [[nodiscard]] std::uint64_t accepted() const { return accepted_; }
  // The number that the caller must acknowledge to the other side now, if it is time for that; it
  // then counts as acknowledged.
  [[nodiscard]] std::optional<std::uint64_t> ack_due();

  static constexpr std::uint64_t kAckMessages = 64;
  static constexpr std::size_t kAckBytes = 256 << 10;
  static constexpr std::size_t kMaxUnackedBytes = 256 << 20;

 private:
  std::uint64_t sent_ = 0;           // last number given out
  std::uint64_t accepted_ = 0;       // last number accepted
  std::uint64_t acked_ = 0;          // last number reported by ack_due()
  std::size_t bytes_since_ack_ = 0;  // accepted since then
  std::deque<Sent> unacked_;
  std::size_t unacked_bytes_ = 0;
};

}  // namespace regroup::agent
