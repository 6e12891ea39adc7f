// The interface between an operation over several hosts and its backend: messages between two
// ranks, operations among the ranks of this host, and failure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "collective/net/scratch.h"
#include "collective/net/task.h"
#include "regroup/operation.h"

namespace regroup::collective::net {

// Distinguishes the messages between two ranks in one operation.
struct MessageTag {
  enum Phase : std::uint8_t {
    kHalving,
    kExtra = 64,
    kResult,
    kBlock,
    kNodes,
    kBarrier,
    kDoubling = 128
  };

  // True if the message needs an ack of its own. A rank may die right after its operation returns,
  // and messages that it has not yet delivered are lost with it; so the sender of a block waits for
  // the ack. Other messages need no ack: when a rank returns, it has read everything that its
  // partner sends in the operation, and a kernel delivers the last messages of a dead process that
  // leaves nothing unread. A later message acks them.
  [[nodiscard]] bool needs_ack() const { return phase == kBlock || phase == kNodes; }

  std::uint8_t phase = kBlock;  // kHalving or kDoubling + step
  std::uint32_t chunk = 0;      // below 2^20
  std::uint32_t segment = 0;    // below 2^20
  std::uint32_t tree_node = 0;  // below 2^16

  [[nodiscard]] std::uint64_t pack() const {
    return static_cast<std::uint64_t>(phase) << 56 | static_cast<std::uint64_t>(chunk) << 36 |
           static_cast<std::uint64_t>(segment) << 16 | tree_node;
  }
};

// The data of a message, in place where it has arrived if possible.
struct Received {
  const std::byte* data = nullptr;
  Scratch::Buffer room;   // owns `data` if the messenger had to copy it
  bool borrowed = false;  // true: `data` is in the messenger's memory, valid until release()
};

// The messages of one operation of one communicator. Ranks are those of the communicator. Each
// function returns a task that ends when its part is done. A task cannot fail (task.h): on an error
// the operation ends, with all its tasks. The caller owns all memory and keeps it until the task
// has ended. Used by one thread.
class Messenger {
 public:
  virtual ~Messenger() = default;

  // Sends `data`. Ends when `data` may be changed; for a tag that needs an ack, when the receiver
  // has the data.
  [[nodiscard]] virtual Task send(int to, MessageTag tag, Input data) = 0;
  // Receives exactly data.size() bytes; a message of another size fails the operation.
  [[nodiscard]] virtual Task receive(int from, MessageTag tag, Output data) = 0;
  // Receives up to `limit` bytes, to which `data` is resized.
  [[nodiscard]] virtual Task receive_up_to(std::size_t limit, int from, MessageTag tag,
                                           std::vector<std::byte>* data) = 0;
  // Receives exactly `bytes` bytes without copying them if possible. `tag` must not need an ack.
  [[nodiscard]] virtual Task receive_in_place(int from, MessageTag tag, std::size_t bytes,
                                              Received* out) = 0;
  // Gives back the data of this message, which receive_in_place() has borrowed.
  virtual void release(int from, MessageTag tag) = 0;
  // Runs `operation` among the ranks of this host, as a part of the current operation. All ranks of
  // the host must start the same local operations in the same order, whatever the network does.
  [[nodiscard]] virtual Task run_locally(Operation operation) = 0;
  // Fails the operation in all ranks. The task never ends.
  [[nodiscard]] virtual Task fail(base::Status why) = 0;
};

}  // namespace regroup::collective::net
