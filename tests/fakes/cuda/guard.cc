// Leaves the handler of a signal by a jump.
#include "tests/fakes/cuda/guard.h"

#include <csetjmp>
#include <csignal>
#include <iterator>

namespace regroup::fakes::cuda {
namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS};
struct sigaction earlier[std::size(kSignals)];

// Of a thread that runs work. In memory that exists from the thread's start: a handler must not
// allocate.
__attribute__((tls_model("initial-exec"))) thread_local sigjmp_buf* landing = nullptr;

void handle(int signal, siginfo_t* info, void*) {
  const bool by_instruction = info->si_code > 0;
  if (landing != nullptr && by_instruction) siglongjmp(*landing, 1);
  // Without the fake's handler the instruction, or the signal, comes again.
  for (std::size_t i = 0; i < std::size(kSignals); ++i)
    if (kSignals[i] == signal) ::sigaction(signal, &earlier[i], nullptr);
  if (!by_instruction) (void)::raise(signal);
}

}  // namespace

void install_guard() {
  struct sigaction action = {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  for (std::size_t i = 0; i < std::size(kSignals); ++i)
    ::sigaction(kSignals[i], &action, &earlier[i]);
}

bool run_guarded(const std::function<void()>& work) {
  sigjmp_buf here;
  if (sigsetjmp(here, 0) != 0) {
    landing = nullptr;
    return false;
  }
  landing = &here;
  work();
  landing = nullptr;
  return true;
}

}  // namespace regroup::fakes::cuda
