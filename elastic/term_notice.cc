// The handler is async-signal-safe: an atomic store, a futex wake, or the default action of the
// signal.
#include "elastic/term_notice.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <ctime>

namespace regroup::elastic {
namespace {

// Globals, since a signal handler can reach nothing else.
std::atomic<pid_t> noticed_process{0};
std::atomic<shmem::MemberSlot*> noticed_slot{nullptr};
std::atomic<std::int64_t> first_ns{0};  // time of the first SIGTERM; 0: none
std::atomic<bool> is_leaving{false};

// SIGTERMs within this time count as one: Slurm sends it to all processes of a job, and the agent
// forwards its own.
constexpr std::int64_t kSameNotice = 5'000'000'000;

std::int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

void end_by_sigterm() {
  ::signal(SIGTERM, SIG_DFL);
  ::raise(SIGTERM);
}

void on_term(int /*signal*/) {
  if (::getpid() != noticed_process.load()) return end_by_sigterm();  // a forked child is no member
  const int saved = errno;
  std::int64_t first = 0;
  const std::int64_t now = now_ns();
  if (!first_ns.compare_exchange_strong(first, now)) {
    if (now - first > kSameNotice && !is_leaving.load()) end_by_sigterm();
    errno = saved;
    return;
  }
  if (shmem::MemberSlot* slot = noticed_slot.load(); slot != nullptr) {
    std::uint32_t stay = shmem::kStay;
    slot->leave_request.compare_exchange_strong(stay, shmem::kAtBoundary);
    shmem::ring(slot->bell);
  }
  errno = saved;
}

}  // namespace

TermNotice::TermNotice(shmem::MemberSlot* slot) {
  struct sigaction now {};
  shmem::MemberSlot* none = nullptr;
  if (slot == nullptr || ::sigaction(SIGTERM, nullptr, &now) != 0 || now.sa_handler != SIG_DFL)
    return;
  if (!noticed_slot.compare_exchange_strong(none, slot)) return;
  noticed_process.store(::getpid());
  first_ns.store(0);
  is_leaving.store(false);
  struct sigaction action {};
  action.sa_handler = on_term;
  action.sa_flags = SA_RESTART;
  installed_ = ::sigaction(SIGTERM, &action, nullptr) == 0;
}

void TermNotice::set_leaving(bool leaving) {
  if (installed_) is_leaving.store(leaving);
}

TermNotice::~TermNotice() {
  if (!installed_) return;
  ::signal(SIGTERM, SIG_DFL);
  noticed_slot.store(nullptr);
}

}  // namespace regroup::elastic
