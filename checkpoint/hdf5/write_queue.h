// Writes in flight: out of the caller's memory where it is aligned, else out of a few buffers,
// handed out empty and taken back full.
#pragma once

#include <liburing.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/fd.h"
#include "base/status.h"
#include "checkpoint/hdf5/image_writer.h"

namespace regroup::checkpoint::hdf5 {

class WriteQueue {
 public:
  static constexpr std::size_t kBuffers = 4;
  static constexpr std::size_t kBufferBytes = 4 << 20;
  static constexpr std::size_t kAlignment = 4096;  // of offsets and lengths with O_DIRECT

  // For the existing file `path`.
  [[nodiscard]] static base::Result<std::unique_ptr<WriteQueue>> open(const std::string& path,
                                                                      const WriteOptions& options);
  ~WriteQueue();
  WriteQueue(const WriteQueue&) = delete;
  WriteQueue& operator=(const WriteQueue&) = delete;

  // A buffer that no write uses. Blocks until there is one; the error of a write that failed.
  [[nodiscard]] base::Result<std::span<std::byte>> buffer();
  // Writes the first `bytes` of the buffer handed out last at `offset`, a multiple of kAlignment.
  // With O_DIRECT up to kAlignment - 1 bytes behind them are written too; finish() cuts them off.
  [[nodiscard]] base::Status write(std::uint64_t offset, std::size_t bytes);
  // The same out of the caller's memory, which stays as it is until finish(): whole multiples of
  // kAlignment, and so aligned. Does not wait for the device unless kBuffers writes are in flight.
  [[nodiscard]] base::Status write_from(std::uint64_t offset, std::span<const std::byte> bytes);
  // All writes are done, the file has `bytes` and is on the disk.
  [[nodiscard]] base::Status finish(std::uint64_t bytes);

 private:
  struct Flight {
    const std::byte* from = nullptr;
    std::uint64_t offset = 0;
    std::size_t bytes = 0;
    bool busy = false;
  };

  WriteQueue(std::string path, base::Fd file, bool direct);
  [[nodiscard]] base::Status take_slot();  // current_ is one that no write uses; blocks
  [[nodiscard]] base::Status submit(const Flight& flight);
  [[nodiscard]] base::Status reap();  // one completion; blocks
  [[nodiscard]] base::Status write_rest(std::size_t index, std::size_t done);
  [[nodiscard]] std::byte* memory(std::size_t index) const {
    return memory_ + index * kBufferBytes;
  }

  const std::string path_;
  base::Fd file_;
  const bool direct_;
  std::byte* memory_ = nullptr;
  std::optional<io_uring> ring_;
  std::array<Flight, kBuffers> flights_;
  std::size_t current_ = 0;  // its buffer is handed out, or its write is begun
  std::size_t in_flight_ = 0;
};

}  // namespace regroup::checkpoint::hdf5
