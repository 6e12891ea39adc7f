// The secret is never on the heap: allocators copy memory, and heaps appear in dumps.
#include "launcher/transport/job_secret.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/clock.h"
#include "launcher/transport/openssl.h"

namespace regroup::transport {
namespace {

constexpr std::array<char, 8> kMark{'r', 'e', 'g', 'r', 'o', 'u', 'p', '1'};

// Milliseconds until `end`, rounded up.
int left_until(base::TimePoint end) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - base::SystemClock().now());
  return static_cast<int>(std::max<std::int64_t>(0, left.count()));
}

base::Status fill(int fd, std::span<std::byte> bytes, base::Duration limit) {
  const base::TimePoint end = base::SystemClock().now() + limit;
  for (std::size_t got = 0; got < bytes.size();) {
    pollfd waiting{fd, POLLIN, 0};
    const int ready = ::poll(&waiting, 1, left_until(end));
    if (ready < 0 && errno != EINTR) return base::system_error("poll", "the job's secret", errno);
    if (ready == 0)
      return base::deadline_exceeded("no job secret received on standard input in time");
    if (ready < 0) continue;
    const ssize_t count = ::read(fd, bytes.data() + got, bytes.size() - got);
    if (count < 0 && errno != EINTR && errno != EAGAIN) {
      return base::system_error("read", "the job's secret", errno);
    }
    if (count == 0)
      return base::peer_lost("standard input ended before the job's secret was received");
    got += static_cast<std::size_t>(std::max<ssize_t>(count, 0));
  }
  return {};
}

}  // namespace

struct JobSecret::Page {  // the whole message, so that it is read and written in place
  std::array<char, 8> mark;
  std::array<std::byte, kBytes> secret;
};

base::Result<std::shared_ptr<JobSecret>> JobSecret::make() {
  REGROUP_RETURN_IF_ERROR(load_openssl());
  const auto size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* page = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return base::system_error("mmap", "a page for the job's secret", errno);
  std::shared_ptr<JobSecret> secret(new JobSecret(new (page) Page{kMark, {}}));
  if (::madvise(page, size, MADV_DONTDUMP) != 0) {
    return base::system_error("madvise(MADV_DONTDUMP)", "the job's secret", errno);
  }
  // Fails where RLIMIT_MEMLOCK is 0, which is no reason to refuse the job.
  static_cast<void>(::mlock(page, size));
  return secret;
}

base::Result<std::shared_ptr<const JobSecret>> JobSecret::generate() {
  REGROUP_ASSIGN_OR_RETURN(auto secret, make());
  // Blocks only until the kernel's generator is seeded after boot; up to 256 bytes come whole.
  if (::getrandom(secret->page_->secret.data(), kBytes, 0) != static_cast<ssize_t>(kBytes)) {
    return base::system_error("getrandom", "the job's secret", errno);
  }
  return std::shared_ptr<const JobSecret>(std::move(secret));
}

base::Result<std::shared_ptr<const JobSecret>> JobSecret::read(int fd, base::Duration limit) {
  REGROUP_ASSIGN_OR_RETURN(auto secret, make());
  Page* const page = secret->page_;
  REGROUP_RETURN_IF_ERROR(fill(fd, std::as_writable_bytes(std::span(page, 1)), limit));
  if (page->mark != kMark) {
    return base::data_loss(
        "standard input: expected the job's secret, got other bytes: does a login script "
        "read or write there?");
  }
  return std::shared_ptr<const JobSecret>(std::move(secret));
}

JobSecret::~JobSecret() {
  ::explicit_bzero(page_, sizeof *page_);
  ::munmap(page_, static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)));
}

base::Status JobSecret::write(int fd) const {
  static_assert(sizeof(Page) == kMessageBytes);
  ssize_t count = ::send(fd, page_, sizeof *page_, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (count < 0 && errno == ENOTSOCK) count = ::write(fd, page_, sizeof *page_);
  if (count < 0) return base::system_error("write", "the job's secret", errno);
  if (count != static_cast<ssize_t>(sizeof *page_)) {
    return base::unavailable("write(the job's secret): incomplete, the pipe is full");
  }
  return {};
}

base::Status JobSecret::derive(std::string_view purpose, Key key) const {
  unsigned int size = 0;
  const auto* data = reinterpret_cast<const unsigned char*>(purpose.data());
  auto* out = reinterpret_cast<unsigned char*>(key.data());
  if (openssl().HMAC(openssl().EVP_sha256(), page_->secret.data(), kBytes, data, purpose.size(),
                     out, &size) == nullptr ||
      size != kBytes) {
    return base::internal_error(fmt::format("HMAC-SHA256 of {} bytes failed", purpose.size()));
  }
  return {};
}

}  // namespace regroup::transport
