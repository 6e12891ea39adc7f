// Point-to-point messages: send and receive. The sender waits until the receiver has posted its
// receive, then passes the data in chunks through its own bounce buffer, one message at a time. So
// a message that is never received blocks no other message.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "collective/shm/bounce_buffer.h"
#include "regroup/operation.h"
#include "shmem/arena.h"

namespace regroup::collective::shm {

struct Message {
  Operation operation;  // kSend or kReceive
  const void* communicator;
  proto::SlotIndex peer;
  std::uint64_t ticket;
  base::TimePoint started;
  base::TimePoint deadline;
  bool begun = false;
  std::uint64_t first = 0;   // number of chunks that this pair exchanged before the message
  std::uint64_t chunks = 0;  // number of chunks of the message that this side has completed
};

// Owned and used by one thread.
class Messages {
 public:
  Messages(const shmem::Arena& arena, proto::Generation generation, proto::Position instance,
           proto::SlotIndex self);

  void add(const Message& message) { messages_.push_back(message); }
  [[nodiscard]] bool empty() const { return messages_.empty(); }
  // Advances all messages without waiting, and removes the complete ones. kInvalidArgument if the
  // two sides of a message differ in size.
  [[nodiscard]] base::Status advance();
  // Number of chunks written and taken so far.
  [[nodiscard]] std::uint64_t progress() const { return progress_; }
  [[nodiscard]] const Message* find(std::uint64_t ticket) const;  // null if it is complete
  [[nodiscard]] bool has_any_of(const void* communicator) const;
  [[nodiscard]] std::string describe_wait(const Message& message) const;

 private:
  [[nodiscard]] base::Result<bool> advance(Message& message);
  [[nodiscard]] base::Result<bool> send(Message& message);
  [[nodiscard]] base::Result<bool> receive(Message& message);
  [[nodiscard]] base::Status open(PairCounters& counters) const;
  [[nodiscard]] bool is_first(const Message& message) const;
  [[nodiscard]] PairCounters& mine(proto::SlotIndex peer) const {
    return bounce_buffer_of(arena_, self_).counters[peer];
  }
  [[nodiscard]] const PairCounters& theirs(proto::SlotIndex peer) const {
    return bounce_buffer_of(arena_, peer).counters[self_];
  }
  [[nodiscard]] base::Status mismatch(const Message& message, std::uint64_t bytes) const;

  const shmem::Arena& arena_;
  const std::uint64_t instance_;
  const proto::SlotIndex self_;
  std::deque<Message> messages_;  // in the order of their start
  std::uint64_t sender_ = 0;      // ticket of the send that owns the message chunks; 0: none
  std::uint64_t sends_[proto::kMaxSlots] = {};
  std::uint64_t progress_ = 0;
};

}  // namespace regroup::collective::shm
