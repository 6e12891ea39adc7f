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
class HandedBytes {
 public:
  // Giver. Waits while kMost parts are on their way. `part` becomes a buffer that may be filled next. False:
  // nobody takes any more.
  [[nodiscard]] bool give(std::vector<std::byte>& part);
  // Giver: nothing follows, or an error does. The first counts.
  void end(core::Status status);

  // Taker: the next bytes. kDeadlineExceeded: nothing came for `limit`; the giver's error;
  // kDataLoss: it has ended before.
  [[nodiscard]] core::Status take(std::span<std::byte> into, core::Duration limit);
  // Taker: no more is wanted.
  void leave();

  static constexpr std::size_t kMost = 2;  // parts on their way

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::vector<std::byte>> parts_;  // guarded by mutex_, as what follows
  std::vector<std::byte> spare_;
  std::optional<core::Status> end_;
  bool left_ = false;
  std::vector<std::byte> front_;  // the taker's, from taken_ on
  std::size_t taken_ = 0;
};

}  // namespace regroup::elastic
