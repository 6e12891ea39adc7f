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
struct Look {
  std::span<const std::byte> mapping;
  std::atomic<bool> lost = false;
};
constinit thread_local std::atomic<Look*> t_look = nullptr;
constinit std::atomic<const struct sigaction*> g_before = nullptr;

std::uint64_t page_size() { return static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)); }

bool replaced(Look* look, const siginfo_t& info) {
  if (look == nullptr || info.si_code <= 0) return false;  // <= 0: sent by a process
  const auto at = reinterpret_cast<std::uintptr_t>(info.si_addr);
  const auto begin = reinterpret_cast<std::uintptr_t>(look->mapping.data());
  if (at < begin || at - begin >= look->mapping.size()) return false;
  void* const where = const_cast<std::byte*>(look->mapping.data());
  if (::mmap(where, look->mapping.size(), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
             0) != where)
    return false;
  look->lost.store(true, std::memory_order_relaxed);
  return true;
}

void on_bus(int number, siginfo_t* info, void* context) {
  const int error = errno;
  if (!replaced(t_look.load(std::memory_order_relaxed), *info)) {
    const struct sigaction& before = *g_before.load(std::memory_order_relaxed);
    const bool sent = info->si_code <= 0;
    if ((before.sa_flags & SA_SIGINFO) != 0) {
      before.sa_sigaction(number, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
      before.sa_handler(number);
    } else if (before.sa_handler == SIG_DFL ||
               !sent) {  // the instruction runs again, and raises the signal without our handler
      (void)::sigaction(SIGBUS, &before, nullptr);
      if (sent) (void)::raise(number);
    }
  }
  errno = error;
}

}  // namespace

BusGuard::BusGuard() {
  assert(g_before.load() == nullptr);
  g_before.store(&before_);
  (void)::sigaction(SIGBUS, nullptr, &before_);
  struct sigaction own {};
  own.sa_sigaction = on_bus;
  own.sa_flags = SA_SIGINFO | SA_ONSTACK;
  (void)::sigaction(SIGBUS, &own, nullptr);
}

BusGuard::~BusGuard() {
  (void)::sigaction(SIGBUS, &before_, nullptr);
  g_before.store(nullptr);
}

bool BusGuard::sees(std::span<const std::byte> mapping, const std::function<void()>& look) const {
  assert(reinterpret_cast<std::uintptr_t>(mapping.data()) % page_size() == 0);
  Look one{mapping};
  t_look.store(&one, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  look();
  std::atomic_signal_fence(std::memory_order_seq_cst);
  t_look.store(nullptr, std::memory_order_relaxed);
  return !one.lost.load(std::memory_order_relaxed);
}

std::optional<std::uint32_t> sum_mapped(const BusGuard& guard, int fd, std::uint64_t offset,
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
    if (guard.sees(mapping, [&] { crc = base::crc32c(mapping.subspan(offset - begin)); }))
      sum = crc;
  }
  (void)::munmap(at, size);
  return sum;
}

}  // namespace regroup::checkpoint
