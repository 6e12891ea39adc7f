// A queue of a few buffers, which go round.
#include "elastic/handed_bytes.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace regroup::elastic {

using core::Status;

bool HandedBytes::give(std::vector<std::byte>& part) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return left_ || parts_.size() < kMost; });
  if (left_) return false;
  parts_.push_back(std::move(part));
  part = std::exchange(spare_, {});
  changed_.notify_all();
  return true;
}

void HandedBytes::end(Status status) {
  const std::lock_guard lock(mutex_);
  if (!end_) end_ = std::move(status);
  changed_.notify_all();
}

Status HandedBytes::take(std::span<std::byte> into, core::Duration limit) {
  while (!into.empty()) {
    if (taken_ == front_.size()) {
      std::unique_lock lock(mutex_);
      if (!changed_.wait_for(lock, limit, [this] { return !parts_.empty() || end_; }))
        return core::deadline_exceeded(
            fmt::format("nothing came for {:g} s", std::chrono::duration<double>(limit).count()));
      if (parts_.empty())
        return end_->ok() ? Status(core::Code::kDataLoss, "it ends before it should") : *end_;
      spare_ = std::exchange(front_, std::move(parts_.front()));
      parts_.pop_front();
      taken_ = 0;
      changed_.notify_all();
      continue;
    }
    const std::size_t bytes = std::min(into.size(), front_.size() - taken_);
    std::memcpy(into.data(), front_.data() + taken_, bytes);
    taken_ += bytes;
    into = into.subspan(bytes);
  }
  return {};
}

void HandedBytes::leave() {
  const std::lock_guard lock(mutex_);
  left_ = true;
  parts_.clear();
  changed_.notify_all();
}

}  // namespace regroup::elastic
