// A bounded queue of bytes between a thread that may hang while it reads a file, and a consumer
// that must not hang with it.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace regroup::elastic {

// One producer thread, one consumer thread. The consumer copies bytes out, so the producer never
// touches the consumer's memory: an abandoned producer can do no harm.
class ByteQueue {
 public:
  // Producer: appends `buffer`, and replaces it by a free one to fill next. Blocks while
  // kMaxBuffers are queued. False: the consumer has cancelled.
  [[nodiscard]] bool push(std::vector<std::byte>& buffer);
  // Producer: ends the stream, with OK or the error that the consumer gets after the queued bytes.
  // The first call counts.
  void close(base::Status status);

  // Consumer: fills `into` with the next bytes. kDeadlineExceeded: no bytes came for `limit`;
  // kDataLoss: the stream ended too early; other errors are the producer's.
  [[nodiscard]] base::Status pop(std::span<std::byte> into, base::Duration limit);
  // Consumer: discards the queued bytes; push() returns false from now on.
  void cancel();

  static constexpr std::size_t kMaxBuffers = 2;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  std::deque<std::vector<std::byte>> buffers_;
  std::vector<std::byte> spare_;
  std::optional<base::Status> status_;
  bool cancelled_ = false;
  // Used by the consumer only: the buffer being read, and the number of its bytes already read.
  std::vector<std::byte> front_;
  std::size_t consumed_ = 0;
};

}  // namespace regroup::elastic
