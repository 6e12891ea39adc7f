// A file may shrink, or its device fail, between the check of the page cache and the last byte of
// the checksum. The signal handler then maps zero pages in place of the file, and the computation
// continues to its end. The handler only calls mmap(), a plain system call, so it is signal-safe.
#include "checkpoint/mapped.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cassert>
#include <cerrno>

#include "base/crc32c.h"
#include "checkpoint/file_io.h"

namespace regroup::checkpoint {
namespace {

constexpr std::uint64_t kWorthAMapping = 256 << 10;

// The mapping that a thread is reading.
struct GuardedRead {
  std::span<const std::byte> mapping;
  std::atomic<bool> lost = false;
};
constinit thread_local std::atomic<GuardedRead*> t_read = nullptr;
constinit std::atomic<const struct sigaction*> g_previous = nullptr;

std::uint64_t page_size() { return static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)); }

bool replace_mapping(GuardedRead* read, const siginfo_t& info) {
  if (read == nullptr || info.si_code <= 0) return false;  // <= 0: sent by a process
  const auto at = reinterpret_cast<std::uintptr_t>(info.si_addr);
  const auto begin = reinterpret_cast<std::uintptr_t>(read->mapping.data());
  if (at < begin || at - begin >= read->mapping.size()) return false;
  void* const where = const_cast<std::byte*>(read->mapping.data());
  if (::mmap(where, read->mapping.size(), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
             0) != where)
    return false;
  read->lost.store(true, std::memory_order_relaxed);
  return true;
}

void on_bus(int number, siginfo_t* info, void* context) {
  const int error = errno;
  if (!replace_mapping(t_read.load(std::memory_order_relaxed), *info)) {
    const struct sigaction& previous = *g_previous.load(std::memory_order_relaxed);
    const bool sent = info->si_code <= 0;
    if ((previous.sa_flags & SA_SIGINFO) != 0) {
      previous.sa_sigaction(number, info, context);
    } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
      previous.sa_handler(number);
    } else if (previous.sa_handler == SIG_DFL ||
               !sent) {  // the instruction runs again, and raises the signal without our handler
      (void)::sigaction(SIGBUS, &previous, nullptr);
      if (sent) (void)::raise(number);
    }
  }
  errno = error;
}

}  // namespace

SigbusGuard::SigbusGuard() {
  assert(g_previous.load() == nullptr);
  g_previous.store(&previous_);
  (void)::sigaction(SIGBUS, nullptr, &previous_);
  struct sigaction own {};
  own.sa_sigaction = on_bus;
  own.sa_flags = SA_SIGINFO | SA_ONSTACK;
  (void)::sigaction(SIGBUS, &own, nullptr);
}

SigbusGuard::~SigbusGuard() {
  (void)::sigaction(SIGBUS, &previous_, nullptr);
  g_previous.store(nullptr);
}

bool SigbusGuard::try_read(std::span<const std::byte> mapping,
                           const std::function<void()>& read) const {
  assert(reinterpret_cast<std::uintptr_t>(mapping.data()) % page_size() == 0);
  GuardedRead one{mapping};
  t_read.store(&one, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  read();
  std::atomic_signal_fence(std::memory_order_seq_cst);
  t_read.store(nullptr, std::memory_order_relaxed);
  return !one.lost.load(std::memory_order_relaxed);
}

std::optional<std::uint32_t> sum_mapped(const SigbusGuard& guard, int fd, std::uint64_t offset,
                                        std::uint64_t bytes) {
  if (bytes < kWorthAMapping || !in_page_cache(fd, offset, bytes)) return std::nullopt;
  const std::uint64_t page = page_size();
  const std::uint64_t begin = offset / page * page, size = offset + bytes - begin;
  void* const at = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, static_cast<off_t>(begin));
  if (at == MAP_FAILED) return std::nullopt;
  std::optional<std::uint32_t> sum;
  // Maps all pages in one call. A kernel before 5.14 does not support it and takes a fault per
  // page.
  if (::madvise(at, size, MADV_POPULATE_READ) == 0 || errno == EINVAL) {
    const std::span<const std::byte> mapping(static_cast<const std::byte*>(at), size);
    std::uint32_t crc = 0;
    if (guard.try_read(mapping, [&] { crc = base::crc32c(mapping.subspan(offset - begin)); }))
      sum = crc;
  }
  (void)::munmap(at, size);
  return sum;
}

}  // namespace regroup::checkpoint
