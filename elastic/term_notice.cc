// The handler only does what is async-signal-safe: an atomic store, a futex wake, and giving the signal back.
#include "elastic/term_notice.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>

namespace regroup::elastic {
namespace {

// All that a signal handler can reach.
std::atomic<pid_t> noticed_process{0};
std::atomic<core::Line*> noticed_line{nullptr};

void on_term(int /*signal*/) {
  const int saved = errno;
  ::signal(SIGTERM, SIG_DFL);
  if (::getpid() != noticed_process.load()) {  // a forked child is no member: SIGTERM is its end
    ::raise(SIGTERM);
    return;
  }
  if (core::Line* line = noticed_line.load(); line != nullptr) {
    std::uint32_t stay = core::kStay;
    line->leave.compare_exchange_strong(stay, core::kAtBoundary);
    core::ring(line->bell);
  }
  errno = saved;
}

}  // namespace

TermNotice::TermNotice(core::Line* line) {
  struct sigaction now {};
  core::Line* none = nullptr;
  if (line == nullptr || ::sigaction(SIGTERM, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) return;
  if (!noticed_line.compare_exchange_strong(none, line)) return;
  noticed_process.store(::getpid());
  struct sigaction action {};
  action.sa_handler = on_term;
  action.sa_flags = SA_RESTART;
  installed_ = ::sigaction(SIGTERM, &action, nullptr) == 0;
}

TermNotice::~TermNotice() {
  if (!installed_) return;
  ::signal(SIGTERM, SIG_DFL);
  noticed_line.store(nullptr);
}

}  // namespace regroup::elastic
