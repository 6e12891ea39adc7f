// vfork, because the launcher's pages need no copy: eight members start in a millisecond. The child shares
// our memory until execve, hence only async-signal-safe calls in it and an error reported through a variable.
#include "launcher/supervise/spawn.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace regroup::launcher {
namespace {

struct Failure {
  const char* volatile call = nullptr;
  volatile int error = 0;
};

struct ChildArgs {
  const char* path;
  char* const* argv;
  char* const* envp;
  const char* wdir;
  int in, out, err;
  Priority priority;
  pid_t parent;
};

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> out;
  out.reserve(strings.size() + 1);
  for (const std::string& string : strings) out.push_back(const_cast<char*>(string.c_str()));
  out.push_back(nullptr);
  return out;
}

void reset_signals() {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, &action, nullptr);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

[[noreturn]] void run_child(const ChildArgs& args, Failure& failure) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (::getppid() != args.parent) ::_exit(127);  // it died before the call above
  restore_priority(args.priority);
  if (::dup2(args.in, 0) < 0 || ::dup2(args.out, 1) < 0 || ::dup2(args.err, 2) < 0) {
    failure.call = "dup2";
  } else if (args.wdir[0] != '\0' && ::chdir(args.wdir) != 0) {
    failure.call = "chdir";
  } else {
    ::close_range(3, ~0U, 0);
    reset_signals();
    ::execve(args.path, args.argv, args.envp);
    failure.call = "execve";
  }
  failure.error = errno;
  ::_exit(127);
}

// Nothing here may change between vfork's two returns.
pid_t start(const ChildArgs& args, Failure& failure) {
  const pid_t pid = ::vfork();
  if (pid == 0) run_child(args, failure);
  return pid;
}

}  // namespace

core::Result<pid_t> spawn(const SpawnSpec& spec) {
  const std::vector<char*> argv = pointers(spec.argv);
  const std::vector<char*> envp = pointers(spec.environment);
  Failure failure;
  const pid_t pid = start({spec.path.c_str(), argv.data(), envp.data(), spec.wdir.c_str(), spec.in, spec.out,
                           spec.err, spec.priority, ::getpid()},
                          failure);
  if (pid < 0) return core::system_error("vfork", spec.path, errno);
  if (failure.call == nullptr) return pid;
  const bool folder = std::string(failure.call) == "chdir";
  return core::system_error(failure.call, folder ? spec.wdir : spec.path, failure.error);
}

}  // namespace regroup::launcher
