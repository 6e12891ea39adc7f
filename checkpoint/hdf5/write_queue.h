// Writes in flight: a few aligned buffers, handed out empty and taken back full.
#pragma once

#include <liburing.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "checkpoint/hdf5/image_writer.h"
#include "core/fd.h"
#include "core/status.h"

namespace regroup::checkpoint::hdf5 {

class WriteQueue {
 public:
  static constexpr std::size_t kBuffers = 4;
  static constexpr std::size_t kBufferBytes = 4 << 20;
  static constexpr std::size_t kAlignment = 4096;  // of offsets and lengths with O_DIRECT

  // For the existing file `path`.
  [[nodiscard]] static core::Result<std::unique_ptr<WriteQueue>> open(const std::string& path,
                                                                      const WriteOptions& options);
  ~WriteQueue();
  WriteQueue(const WriteQueue&) = delete;
  WriteQueue& operator=(const WriteQueue&) = delete;

  // A buffer that no write uses. Blocks until there is one; the error of a write that failed.
  [[nodiscard]] core::Result<std::span<std::byte>> buffer();
  // Writes the first `bytes` of the buffer handed out last at `offset`, a multiple of kAlignment. With
  // O_DIRECT up to kAlignment - 1 bytes behind them are written too; finish() cuts them off.
  [[nodiscard]] core::Status write(std::uint64_t offset, std::size_t bytes);
  // All writes are done, the file has `bytes` and is on the disk.
  [[nodiscard]] core::Status finish(std::uint64_t bytes);

 private:
  struct Flight {
    std::uint64_t offset = 0;
    std::size_t bytes = 0;
    bool busy = false;
  };

  WriteQueue(std::string path, core::Fd file, bool direct);
  [[nodiscard]] core::Status reap();  // one completion; blocks
  [[nodiscard]] core::Status write_rest(std::size_t index, std::size_t done);
  [[nodiscard]] std::byte* memory(std::size_t index) const { return memory_ + index * kBufferBytes; }

  const std::string path_;
  core::Fd file_;
  const bool direct_;
  std::byte* memory_ = nullptr;
  std::optional<io_uring> ring_;
  std::array<Flight, kBuffers> flights_;
  std::size_t current_ = 0;  // handed out by buffer()
  std::size_t in_flight_ = 0;
};

}  // namespace regroup::checkpoint::hdf5
