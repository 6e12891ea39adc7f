// Signals through a signalfd.
#include "launcher/process/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

namespace regroup::process {

void block_signals() {
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_BLOCK, &all, nullptr);
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, nullptr);
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name != nullptr ? std::string("SIG") + name : "signal " + std::to_string(signal);
}

std::vector<int> signals_forwarded_by(spec::Compat compat) {
  if (compat == spec::Compat::kMpich) return {SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGALRM};
  return {SIGTSTP, SIGUSR1, SIGUSR2, SIGABRT, SIGALRM, SIGCONT};
}

base::Status SignalReader::start(const std::vector<int>& signals) {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : signals) ::sigaddset(&set, signal);
  const int fd = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd < 0) return base::system_error("signalfd", "this process", errno);
  stream_.assign(fd);
  wait();
  return {};
}

void SignalReader::wait() {
  stream_.async_wait(stream_.wait_read, [this](const boost::system::error_code& error) {
    if (error) return;
    signalfd_siginfo info{};
    while (::read(stream_.native_handle(), &info, sizeof info) == sizeof info) {
      by_key_ = info.ssi_code == SI_KERNEL;
      handler_(static_cast<int>(info.ssi_signo));
    }
    wait();
  });
}

}  // namespace regroup::process
