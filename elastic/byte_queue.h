// Bytes on their way from a thread that reads them, and may hang for ever, to one that has better to do.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "core/clock.h"
#include "core/status.h"

namespace regroup::elastic {

// One thread gives, one takes. What is taken was copied: the giver never touches the taker's memory.
class ByteQueue {
 public:
  // Giver. Waits while kMaxBuffers parts are on their way. `buffer` becomes a buffer that may be filled next.
  // False: nobody takes any more.
  [[nodiscard]] bool push(std::vector<std::byte>& buffer);
  // Giver: nothing follows, or an error does. The first counts.
  void close(core::Status status);

  // Taker: the next bytes. kDeadlineExceeded: nothing came for `limit`; the giver's error;
  // kDataLoss: it has ended before.
  [[nodiscard]] core::Status pop(std::span<std::byte> into, core::Duration limit);
  // Taker: no more is wanted.
  void cancel();

  static constexpr std::size_t kMaxBuffers = 2;  // parts on their way

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::vector<std::byte>> buffers_;  // guarded by mutex_, as what follows
  std::vector<std::byte> spare_;
  std::optional<core::Status> status_;
  bool cancelled_ = false;
  std::vector<std::byte> front_;  // the taker's, from consumed_ on
  std::size_t consumed_ = 0;
};

}  // namespace regroup::elastic
