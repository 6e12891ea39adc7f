// A queue of writes in flight, from the caller's memory if it is aligned, else from one of a few
// buffers that buffer() hands out and write() takes back.
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

  // Opens the existing file `path`.
  [[nodiscard]] static base::Result<std::unique_ptr<WriteQueue>> open(const std::string& path,
                                                                      const WriteOptions& options);
  ~WriteQueue();
  WriteQueue(const WriteQueue&) = delete;
  WriteQueue& operator=(const WriteQueue&) = delete;

  // Returns a buffer that no write uses; blocks until there is one. Returns the error of an earlier
  // write that has failed.
  [[nodiscard]] base::Result<std::span<std::byte>> buffer();
  // Writes the first `bytes` of the buffer handed out last at `offset`, a multiple of kAlignment.
  // With O_DIRECT it writes up to kAlignment - 1 further bytes, which finish() cuts off.
  [[nodiscard]] base::Status write(std::uint64_t offset, std::size_t bytes);
  // Writes the caller's memory, which must not change until finish(); address and size must be
  // multiples of kAlignment. Does not block unless kBuffers writes are in flight.
  [[nodiscard]] base::Status write_from(std::uint64_t offset, std::span<const std::byte> bytes);
  // Waits for all writes, truncates the file to `bytes` and syncs it to disk.
  [[nodiscard]] base::Status finish(std::uint64_t bytes);

 private:
  struct Flight {
    const std::byte* from = nullptr;
    std::uint64_t offset = 0;
    std::size_t bytes = 0;
    bool busy = false;
  };

  WriteQueue(std::string path, base::Fd file, bool direct);
  [[nodiscard]] base::Status take_slot();  // sets current_ to one that no write uses; blocks
  [[nodiscard]] base::Status submit(const Flight& flight);
  [[nodiscard]] base::Status reap();  // waits for one completion
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
  std::size_t current_ = 0;  // the buffer handed out last, or whose write was begun last
  std::size_t in_flight_ = 0;
};

}  // namespace regroup::checkpoint::hdf5
