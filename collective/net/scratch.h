// A pool of buffers for data in flight. It reuses buffers, because faulting in fresh pages takes
// longer than copying the data.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace regroup::collective::net {

// Used by one thread. Must outlive its buffers.
class Scratch {
 public:
  class Buffer {
   public:
    Buffer() = default;
    Buffer(Buffer&& other) noexcept
        : pool_(std::exchange(other.pool_, nullptr)),
          memory_(std::move(other.memory_)),
          bytes_(other.bytes_) {}
    Buffer& operator=(Buffer&& other) noexcept {
      std::swap(pool_, other.pool_);
      std::swap(memory_, other.memory_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() {
      if (pool_ != nullptr) pool_->free_.emplace_back(std::move(memory_), bytes_);
    }

    [[nodiscard]] std::byte* data() const { return memory_.get(); }

   private:
    friend class Scratch;
    Scratch* pool_ = nullptr;
    std::unique_ptr<std::byte[]> memory_;
    std::size_t bytes_ = 0;
  };

  // A buffer of at least `bytes`, not initialised; its destructor returns it to the pool.
  [[nodiscard]] Buffer get(std::size_t bytes) {
    Buffer out;
    out.pool_ = this;
    for (auto& [memory, size] : free_) {
      if (size < bytes || size > 4 * bytes + kSmall) continue;
      out.memory_ = std::move(memory);
      out.bytes_ = size;
      std::swap(memory, free_.back().first);
      std::swap(size, free_.back().second);
      free_.pop_back();
      return out;
    }
    if (free_.size() >= kMost) free_.clear();  // no operation uses these sizes any more
    out.bytes_ = bytes < kSmall ? kSmall : bytes;
    out.memory_ = std::make_unique_for_overwrite<std::byte[]>(out.bytes_);
    return out;
  }

 private:
  static constexpr std::size_t kSmall = 4096;
  static constexpr std::size_t kMost = 64;

  std::vector<std::pair<std::unique_ptr<std::byte[]>, std::size_t>> free_;
};

}  // namespace regroup::collective::net
