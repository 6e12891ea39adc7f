// The job's secret: 32 random bytes that authenticate the processes of a job to each other. They
// live in a page of their own that is excluded from core dumps, locked against swapping where
// permitted, and wiped by the destructor. They are never printed, and are in no argument,
// environment variable or file.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"

namespace regroup::transport {

class JobSecret {
 public:
  static constexpr std::size_t kBytes = 32;
  using Key = std::span<std::byte, kBytes>;

  // Makes a new secret with the kernel's generator.
  [[nodiscard]] static base::Result<std::shared_ptr<const JobSecret>> generate();
  // Reads a secret that write() has written to the other end of `fd`, and not one byte more. Blocks
  // until it is complete, for `limit` at most. kDataLoss: the bytes are no secret.
  [[nodiscard]] static base::Result<std::shared_ptr<const JobSecret>> read(int fd,
                                                                           base::Duration limit);

  JobSecret(const JobSecret&) = delete;
  JobSecret& operator=(const JobSecret&) = delete;
  ~JobSecret();

  // Writes kMessageBytes at once, for an agent's standard input. Does not block: kUnavailable if
  // there is no room for all of them.
  [[nodiscard]] base::Status write(int fd) const;
  static constexpr std::size_t kMessageBytes = 8 + kBytes;

  // Derives a key for one purpose: HMAC-SHA256 of `purpose` under the secret, which it does not
  // reveal. The caller wipes it.
  [[nodiscard]] base::Status derive(std::string_view purpose, Key key) const;

 private:
  struct Page;
  explicit JobSecret(Page* page) : page_(page) {}
  [[nodiscard]] static base::Result<std::shared_ptr<JobSecret>> make();

  Page* const page_;
};

}  // namespace regroup::transport
