// The job's secret: 32 random bytes that prove who belongs to the job. They live in one page of their own,
// which core dumps leave out, swap is kept from where permitted, and the destructor wipes. Nothing prints
// them; they are in no argument, environment variable or file.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "core/clock.h"
#include "core/status.h"

namespace regroup::launcher {

class JobSecret {
 public:
  static constexpr std::size_t kBytes = 32;
  using Key = std::span<std::byte, kBytes>;

  // A new one, from the kernel's generator.
  [[nodiscard]] static core::Result<std::shared_ptr<const JobSecret>> generate();
  // As write() gave it to the other end of `fd`, and not one byte more. Blocks until all is there, `limit` at
  // most. kDataLoss if something else came.
  [[nodiscard]] static core::Result<std::shared_ptr<const JobSecret>> read(int fd, core::Duration limit);

  JobSecret(const JobSecret&) = delete;
  JobSecret& operator=(const JobSecret&) = delete;
  ~JobSecret();

  // kMessageBytes at once, for an agent's standard input. Does not wait: kUnavailable without room for them.
  [[nodiscard]] core::Status write(int fd) const;
  static constexpr std::size_t kMessageBytes = 8 + kBytes;

  // A key for one purpose: HMAC-SHA256 of `purpose` under the secret, which it does not reveal. The caller
  // wipes it.
  [[nodiscard]] core::Status derive(std::string_view purpose, Key key) const;

 private:
  struct Page;
  explicit JobSecret(Page* page) : page_(page) {}
  [[nodiscard]] static core::Result<std::shared_ptr<JobSecret>> make();

  Page* const page_;
};

}  // namespace regroup::launcher
