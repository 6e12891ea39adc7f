// futex_waitv on the futexes of robust mutexes. The kernel wakes a word at its owner's death only
// if FUTEX_WAITERS is set in it, so that is set first, as a thread waiting for the mutex would.
#include "launcher/process/futex_watcher.h"

#include <linux/futex.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

#include "launcher/process/priority.h"

namespace regroup::process {
namespace {

constexpr long kFutexWaitv = 449;  // SYS_futex_waitv, younger than this C library's headers

futex_waitv waiter(const std::atomic<std::uint32_t>* word, std::uint32_t value) {
  return {value, reinterpret_cast<std::uintptr_t>(word), FUTEX_32, 0};
}

// False: the owner is dead. True: `value` is the value to wait on.
bool arm(std::atomic<std::uint32_t>& word, std::uint32_t& value) {
  value = word.load(std::memory_order_acquire);
  while ((value & FUTEX_OWNER_DIED) == 0) {
    if ((value & FUTEX_TID_MASK) == 0 || (value & FUTEX_WAITERS) != 0) return true;
    if (word.compare_exchange_weak(value, value | FUTEX_WAITERS, std::memory_order_acq_rel)) {
      value |= FUTEX_WAITERS;
      return true;
    }
  }
  return false;
}

}  // namespace

std::atomic<std::uint32_t>* futex_word(pthread_mutex_t& mutex) {
  static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof mutex.__data.__lock);
  return reinterpret_cast<std::atomic<std::uint32_t>*>(&mutex.__data.__lock);
}

FutexWatcher::FutexWatcher(boost::asio::io_context& loop, Handler dead, FailureHandler failed)
    : event_(loop), dead_(std::move(dead)), failed_(std::move(failed)) {}

FutexWatcher::~FutexWatcher() {
  if (!thread_.joinable()) return;
  stop_ = true;
  interrupt();
  thread_.join();
}

base::Status FutexWatcher::watch(proto::SlotIndex slot, std::atomic<std::uint32_t>* word) {
  if (!thread_.joinable()) REGROUP_RETURN_IF_ERROR(start());
  {
    const std::lock_guard lock(mutex_);
    words_[slot] = word;
  }
  interrupt();
  return {};
}

void FutexWatcher::unwatch(proto::SlotIndex slot) {
  const std::lock_guard lock(mutex_);
  words_.erase(slot);
  std::erase(found_, slot);
}

base::Status FutexWatcher::start() {
  const int event = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (event < 0) return base::system_error("eventfd", "watcher of members", errno);
  event_.assign(event);
  wait_event();
  thread_ = std::thread([this] { run(); });
  return {};
}

void FutexWatcher::interrupt() {
  control_.fetch_add(1, std::memory_order_seq_cst);
  ::syscall(SYS_futex, &control_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void FutexWatcher::wait_event() {
  event_.async_wait(event_.wait_read, [this](const boost::system::error_code& error) {
    if (error) return;
    std::uint64_t count = 0;
    static_cast<void>(!::read(event_.native_handle(), &count, sizeof count));
    std::vector<proto::SlotIndex> found;
    base::Status failure;
    {
      const std::lock_guard lock(mutex_);
      found.swap(found_);
      failure = std::exchange(failure_, {});
    }
    wait_event();
    for (const proto::SlotIndex slot : found) dead_(slot);
    if (!failure.ok() && failed_) failed_(failure);
  });
}

void FutexWatcher::signal_event() {
  const std::uint64_t one = 1;
  static_cast<void>(!::write(event_.native_handle(), &one, sizeof one));
}

void FutexWatcher::fail(int error) {
  {
    const std::lock_guard lock(mutex_);
    failure_ = base::system_error(
        "futex_waitv", "watcher of members, whose deaths are noticed some ms later", error);
  }
  signal_event();
}

// True: no owner is dead, and `left` and `values` are what to wait on.
bool FutexWatcher::sweep(std::vector<std::uint32_t>& values, std::vector<Watched>& left) {
  values.clear();
  left.clear();
  const std::lock_guard lock(mutex_);
  for (auto it = words_.begin(); it != words_.end();) {
    std::uint32_t value = 0;
    if (arm(*it->second, value)) {
      left.push_back({it->first, it->second});
      values.push_back(value);
      ++it;
    } else {
      found_.push_back(it->first);
      it = words_.erase(it);
    }
  }
  return found_.empty();
}

void FutexWatcher::run() {
  prefer_promptness();
  std::vector<std::uint32_t> values;
  std::vector<Watched> left;
  while (!stop_) {
    const std::uint32_t control = control_.load(std::memory_order_seq_cst);
    if (!sweep(values, left)) signal_event();
    std::vector<futex_waitv> waiters{waiter(&control_, control)};
    for (std::size_t i = 0; i < left.size(); ++i)
      waiters.push_back(waiter(left[i].word, values[i]));
    const long woken =
        ::syscall(kFutexWaitv, waiters.data(), waiters.size(), 0, nullptr, CLOCK_MONOTONIC);
    // Old kernels (ENOSYS) and sandboxes (EPERM): SIGCHLD reports deaths, later.
    if (woken < 0 && errno != EAGAIN && errno != EINTR && errno != ETIMEDOUT) return fail(errno);
  }
}

}  // namespace regroup::process
