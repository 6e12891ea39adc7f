// The mutex is robust, and waiting for it has a limit: a process may be killed or stopped while it
// writes, and the output of a job must not depend on it.
#include "launcher/process/terminal_line.h"

#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <new>

namespace regroup::process {
namespace {

constexpr long kTurnLimit = 100'000'000;  // nanoseconds
constexpr long kSecond = 1'000'000'000;
constexpr std::size_t kDefaultColumns = 80;

timespec after(long nanoseconds) {
  timespec at{};
  ::clock_gettime(CLOCK_MONOTONIC, &at);
  at.tv_nsec += nanoseconds;
  at.tv_sec += at.tv_nsec / kSecond;
  at.tv_nsec %= kSecond;
  return at;
}

}  // namespace

std::shared_ptr<TerminalLine> TerminalLine::make() {
  void* const memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  auto* const shared = new (memory) Shared;
  pthread_mutexattr_t attributes{};
  ::pthread_mutexattr_init(&attributes);
  ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  ::pthread_mutex_init(&shared->mutex, &attributes);
  ::pthread_mutexattr_destroy(&attributes);
  return std::shared_ptr<TerminalLine>(new TerminalLine(shared));
}

TerminalLine::~TerminalLine() { ::munmap(shared_, sizeof(Shared)); }

std::size_t TerminalLine::columns(int terminal) {
  winsize size{};
  return ::ioctl(terminal, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col
                                                                      : kDefaultColumns;
}

bool TerminalLine::in_foreground(int terminal) {
  const pid_t group = ::tcgetpgrp(terminal);
  return group < 0 || group == ::getpgrp();  // < 0: it does not control this session
}

TerminalLine::Turn::Turn(TerminalLine& line) : shared_(*line.shared_) {
  const timespec limit = after(kTurnLimit);
  const int error = ::pthread_mutex_clocklock(&shared_.mutex, CLOCK_MONOTONIC, &limit);
  if (error == EOWNERDEAD) ::pthread_mutex_consistent(&shared_.mutex);
  locked_ = error == 0 || error == EOWNERDEAD;
}

TerminalLine::Turn::~Turn() {
  if (locked_) ::pthread_mutex_unlock(&shared_.mutex);
}

}  // namespace regroup::process
