// Cross-memory attach.
//
// Why the data that cma_read() returns is right: one system call looks up the process once and
// reads from that address space, first the data, then the canary. A canary that matches identifies
// the address space, and proves that its member had not given up when the kernel read the data,
// since a member withdraws its canary before its caller may change the data. In forked children,
// which copy everything else, the kernel wipes the page of the canary.
#include "collective/shm/cma.h"

#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

namespace regroup::collective::shm {
namespace {

constexpr std::size_t kPage = 4096;

}  // namespace

bool cma_read(const RemoteBuffer& from, std::size_t at, Output to) {
  if (from.address == 0) return false;
  std::uint64_t seen = 0;
  const iovec mine[] = {{to.data(), to.size()}, {&seen, sizeof seen}};
  const iovec theirs[] = {{reinterpret_cast<void*>(from.address + at), to.size()},
                          {reinterpret_cast<void*>(from.canary_address), sizeof seen}};
  // Not through the C library: when members are threads of one process (in tests), sanitizers would
  // report a read from a member that gave up as a bug of the reader.
  const long got = ::syscall(SYS_process_vm_readv, from.pid, mine, 2UL, theirs, 2UL, 0UL);
  return got == static_cast<long>(to.size() + sizeof seen) && seen == from.canary;
}

LivenessCanary::~LivenessCanary() {
  withdraw();
  if (page_ != nullptr) ::munmap(page_, kPage);
}

bool LivenessCanary::create() {
  if (::getrandom(&canary_, sizeof canary_, GRND_NONBLOCK) != sizeof canary_ || canary_ == 0)
    return false;
  void* page = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return false;
  if (::madvise(page, kPage, MADV_WIPEONFORK) != 0) {
    ::munmap(page, kPage);
    return false;
  }
  page_ = new (page) std::atomic<std::uint64_t>(canary_);
  return true;
}

RemoteBuffer LivenessCanary::expose(Input data) {
  if (withdrawn_ || data.empty() || (page_ == nullptr && !create())) return {};
  return {reinterpret_cast<std::uint64_t>(data.data()), reinterpret_cast<std::uint64_t>(page_),
          canary_, ::getpid()};
}

void LivenessCanary::withdraw() {
  withdrawn_ = true;
  if (page_ != nullptr) page_->store(0, std::memory_order_seq_cst);
}

}  // namespace regroup::collective::shm
