// The buffers circulate, so that a stream allocates only a few.
#include "elastic/byte_queue.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace regroup::elastic {

using base::Status;

bool ByteQueue::push(std::vector<std::byte>& buffer) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return cancelled_ || buffers_.size() < kMaxBuffers; });
  if (cancelled_) return false;
  buffers_.push_back(std::move(buffer));
  buffer = std::exchange(spare_, {});
  changed_.notify_all();
  return true;
}

void ByteQueue::close(Status status) {
  const std::lock_guard lock(mutex_);
  if (!status_) status_ = std::move(status);
  changed_.notify_all();
}

Status ByteQueue::pop(std::span<std::byte> into, base::Duration limit) {
  while (!into.empty()) {
    if (consumed_ == front_.size()) {
      std::unique_lock lock(mutex_);
      if (!changed_.wait_for(lock, limit, [this] { return !buffers_.empty() || status_; }))
        return base::deadline_exceeded(
            fmt::format("no data for {:g} s", std::chrono::duration<double>(limit).count()));
      if (buffers_.empty())
        return status_->ok() ? base::data_loss("unexpected end of data") : *status_;
      spare_ = std::exchange(front_, std::move(buffers_.front()));
      buffers_.pop_front();
      consumed_ = 0;
      changed_.notify_all();
      continue;
    }
    const std::size_t bytes = std::min(into.size(), front_.size() - consumed_);
    std::memcpy(into.data(), front_.data() + consumed_, bytes);
    consumed_ += bytes;
    into = into.subspan(bytes);
  }
  return {};
}

void ByteQueue::cancel() {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
  buffers_.clear();
  changed_.notify_all();
}

}  // namespace regroup::elastic
