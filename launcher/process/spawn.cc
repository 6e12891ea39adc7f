// Uses vfork(), since the launcher's pages need no copy: eight members start in a millisecond. The
// child shares the parent's memory until execve(), so it makes only async-signal-safe calls and
// reports an error through a variable.
#include "launcher/process/spawn.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "launcher/process/app.h"
#include "launcher/process/open_files.h"

namespace regroup::process {
namespace {

struct Failure {
  const char* volatile call = nullptr;
  volatile int error = 0;
};

struct ChildArgs {
  const char* path;
  char* const* argv;
  char* const* shell_argv;  // of /bin/sh, where the program is a script that names no interpreter
  char* const* envp;
  const char* wdir;
  int in, out, err;
  Priority priority;
  int inherited;
  const std::vector<int>& kept;
  const cpu_set_t* cores;  // nullptr: none
  std::size_t cores_size;
  const MemoryOrder& memory;
  const std::vector<int>& groups;
  rlim_t data_bytes;  // 0: none
  std::uint64_t open_files;
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

bool place_descriptors(const ChildArgs& args) {
  if (::dup2(args.in, 0) < 0 || ::dup2(args.out, 1) < 0 || ::dup2(args.err, 2) < 0) return false;
  if (args.inherited < 0) return true;
  // dup2() onto itself would leave close-on-exec set.
  if (args.inherited == kInheritedFd) return ::fcntl(kInheritedFd, F_SETFD, 0) == 0;
  return ::dup2(args.inherited, kInheritedFd) >= 0;
}

// Leaves the program those of `args` alone.
void close_others(const ChildArgs& args) {
  unsigned first = args.inherited < 0 ? kInheritedFd : kInheritedFd + 1;
  for (const int kept : args.kept) {
    const auto fd = static_cast<unsigned>(kept);
    if (fd > first) ::close_range(first, fd - 1, 0);
    ::fcntl(kept, F_SETFD, 0);
    first = fd + 1;
  }
  ::close_range(first, ~0U, 0);
}

// Enters the control groups before the program allocates memory, which would else be charged to the
// launcher's group.
bool enter_groups(const ChildArgs& args) {
  for (const int group : args.groups) {
    if (::write(group, "0", 1) != 1) return false;
  }
  return true;
}

bool limit_data(const ChildArgs& args) {
  const rlimit limit{args.data_bytes, args.data_bytes};
  return args.data_bytes == 0 || ::setrlimit(RLIMIT_DATA, &limit) == 0;
}

// The program inherits the policy.
bool set_memory_policy(const MemoryOrder& order) {
  if (order.mode == 0) return true;
  // The kernel subtracts one.
  const unsigned long bits = order.nodes.size() * 8 * sizeof(unsigned long) + 1;
  return ::syscall(SYS_set_mempolicy, order.mode,
                   order.nodes.empty() ? nullptr : order.nodes.data(),
                   order.nodes.empty() ? 0 : bits) == 0;
}

// A file whose beginning holds no byte 0, as shells tell their scripts from programs of another
// machine.
bool is_text(const char* path) {
  std::array<char, 256> first{};
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  const ssize_t count = ::read(file, first.data(), first.size());
  ::close(file);
  return count >= 0 && std::memchr(first.data(), '\0', static_cast<std::size_t>(count)) == nullptr;
}

[[noreturn]] void run_child(const ChildArgs& args, Failure& failure) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (::getppid() != args.parent) ::_exit(127);  // the parent died before prctl()
  restore_priority(args.priority);
  if (!enter_groups(args)) {
    failure.call = "write to cgroup.procs";
  } else if (!limit_data(args)) {
    failure.call = "setrlimit(RLIMIT_DATA)";
  } else if (!restore_open_files(args.open_files)) {
    failure.call = "setrlimit(RLIMIT_NOFILE)";
  } else if (!place_descriptors(args)) {
    failure.call = "dup2";
  } else if (args.cores != nullptr && ::sched_setaffinity(0, args.cores_size, args.cores) != 0) {
    failure.call = "sched_setaffinity";
  } else if (!set_memory_policy(args.memory)) {
    failure.call = "set_mempolicy";
  } else if (args.wdir[0] != '\0' && ::chdir(args.wdir) != 0) {
    failure.call = "chdir";
  } else {
    close_others(args);
    reset_signals();
    ::execve(args.path, args.argv, args.envp);
    if (errno == ENOEXEC) {
      if (is_text(args.path)) ::execve("/bin/sh", args.shell_argv, args.envp);
      errno = ENOEXEC;
    }
    failure.call = "execve";
  }
  failure.error = errno;
  ::_exit(127);
}

// vfork() returns twice in this frame, so nothing here may change in between.
pid_t start(const ChildArgs& args, Failure& failure) {
  const pid_t pid = ::vfork();
  if (pid == 0) run_child(args, failure);
  return pid;
}

// The mask is as long as the highest core number needs.
std::vector<cpu_set_t> mask_of(const std::vector<int>& cores) {
  if (cores.empty()) return {};
  const int highest = *std::max_element(cores.begin(), cores.end());
  std::vector<cpu_set_t> mask(static_cast<std::size_t>(highest) / CPU_SETSIZE + 1);
  for (const int core : cores) CPU_SET_S(core, mask.size() * sizeof(cpu_set_t), mask.data());
  return mask;
}

}  // namespace

base::Result<pid_t> spawn(const SpawnSpec& spec) {
  const std::vector<cpu_set_t> mask = mask_of(spec.cores);
  const std::vector<char*> argv = pointers(spec.argv);
  std::vector<std::string> script = {"sh", spec.path};
  if (!spec.argv.empty()) script.insert(script.end(), spec.argv.begin() + 1, spec.argv.end());
  const std::vector<char*> shell_argv = pointers(script);
  const std::vector<char*> envp = pointers(spec.environment);
  Failure failure;
  const pid_t pid =
      start({spec.path.c_str(), argv.data(), shell_argv.data(), envp.data(), spec.wdir.c_str(),
             spec.in, spec.out, spec.err, spec.priority, spec.inherited, spec.kept,
             mask.empty() ? nullptr : mask.data(), mask.size() * sizeof(cpu_set_t), spec.memory,
             spec.groups, spec.data_bytes, spec.open_files, ::getpid()},
            failure);
  if (pid < 0) return base::system_error("vfork", spec.path, errno);
  if (failure.call == nullptr) return pid;
  const bool folder = std::string(failure.call) == "chdir";
  return base::system_error(failure.call, folder ? spec.wdir : spec.path, failure.error);
}

}  // namespace regroup::process
