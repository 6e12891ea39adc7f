// Ends work that touches memory which it must not touch, instead of the process.
#pragma once

#include <functional>

namespace regroup::fakes::cuda {

// Catches SIGSEGV and SIGBUS of run_guarded(); all others go where they went before. Once.
void install_guard();

// Runs `work`. False if it made one of the two signals, which ends it where it is: it must own
// nothing then. Any thread.
[[nodiscard]] bool run_guarded(const std::function<void()>& work);

}  // namespace regroup::fakes::cuda
