// Uses fork and exec: posix_spawn can set neither CPU affinity nor a parent-death signal.
#include "tools/bench/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/fd.h"

namespace regroup::bench {
namespace {

using base::Status;

constexpr auto kPoll = std::chrono::milliseconds(2);
constexpr std::size_t kOutputEnd = 600;  // bytes
constexpr int kCannotExecute = 127;

// Binds this thread to all cores that the system allows.
void unbind() {
  cpu_set_t all;
  std::memset(&all, 0xff, sizeof all);
  ::sched_setaffinity(0, sizeof all, &all);
}

[[noreturn]] void become(std::vector<char*> words, int null, int log, pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) _exit(kCannotExecute);
  unbind();
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::dup2(null, STDIN_FILENO);
  ::dup2(log, STDOUT_FILENO);
  ::dup2(log, STDERR_FILENO);
  ::execvp(words[0], words.data());
  ::dprintf(STDERR_FILENO, "%s: %s\n", words[0], ::strerror(errno));
  _exit(kCannotExecute);
}

}  // namespace

// Counts in a separate thread, so that only that thread is unbound.
int cores_of_programs() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  std::thread([&] {
    unbind();
    ::sched_getaffinity(0, sizeof cores, &cores);
  }).join();
  return CPU_COUNT(&cores);
}

base::Result<Process> Process::start(const Words& command, const std::string& log) {
  const base::Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const base::Fd file(
      ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600));
  if (!null.valid() || !file.valid()) return base::system_error("open", log, errno);
  Words words = command;
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return base::system_error("fork", command[0], errno);
  if (pid == 0) become(std::move(pointers), null.get(), file.get(), parent);
  ::setpgid(pid, pid);  // parent and child both call it: either may run first
  return Process(command, log, pid);
}

Process::Process(Words command, std::string log, pid_t pid)
    : command_(std::move(command)), log_(std::move(log)), pid_(pid) {}

Process::Process(Process&& other) noexcept
    : command_(std::move(other.command_)),
      log_(std::move(other.log_)),
      pid_(std::exchange(other.pid_, -1)) {}

Process::~Process() {
  if (pid_ < 0) return;
  ::kill(-pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

base::Result<int> Process::wait(base::TimePoint deadline) {
  for (;;) {
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) == pid_) {
      ::kill(-std::exchange(pid_, -1), SIGKILL);  // the children it left in its group
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    if (base::SystemClock().now() >= deadline) {
      return base::deadline_exceeded(
          fmt::format("{}: it did not end in time", fmt::join(command_, " ")));
    }
    std::this_thread::sleep_for(kPoll);
  }
}

std::string Process::output() const {
  std::ifstream file(log_, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

std::string Process::output_end() const {
  const std::string text = output();
  return text.size() > kOutputEnd ? text.substr(text.size() - kOutputEnd) : text;
}

base::Result<std::string> output_of(const Words& command, const std::string& log,
                                    base::TimePoint deadline) {
  REGROUP_ASSIGN_OR_RETURN(auto process, Process::start(command, log));
  REGROUP_ASSIGN_OR_RETURN(auto status, process.wait(deadline));
  if (status == 0) return process.output();
  return base::not_found(
      fmt::format("{}: exit status {}: {}", fmt::join(command, " "), status, process.output_end()));
}

base::Status TemporaryFolder::make() {
  std::error_code error;
  std::string path = std::filesystem::temp_directory_path(error).string() + "/rgbench-XXXXXX";
  if (error)
    return base::internal_error(fmt::format("no folder for temporary files: {}", error.message()));
  if (::mkdtemp(path.data()) == nullptr) return base::system_error("mkdtemp", path, errno);
  path_ = path;
  return {};
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

base::Status write_file(const std::string& path, const std::string& text) {
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  return file ? Status() : base::system_error("write", path, errno != 0 ? errno : EIO);
}

}  // namespace regroup::bench
