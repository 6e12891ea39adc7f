// Kills and removes whole control groups: with cgroup.kill where the kernel has it, else frozen
// first, so that no process forks meanwhile, and repeatedly until they are empty.
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "base/clock.h"
#include "launcher/process/job_cgroup.h"

namespace regroup::process {
namespace {

namespace fs = std::filesystem;

constexpr int kCgroupRecheckMs = 2;

// False: the file is missing or refuses the write.
bool put(const std::string& path, const char* text) {
  const base::Fd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file.valid()) return false;
  const std::string bytes = text;
  return ::write(file.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
}

// The group and its descendants, deepest last.
std::vector<std::string> with_children(const std::string& folder) {
  std::vector<std::string> found{folder};
  for (std::size_t i = 0; i < found.size(); ++i) {
    std::error_code ignored;
    for (const fs::directory_entry& entry : fs::directory_iterator(found[i], ignored)) {
      if (entry.is_directory(ignored)) found.push_back(entry.path().string());
    }
  }
  return found;
}

std::vector<pid_t> processes_in(const std::string& folder) {
  std::vector<pid_t> found;
  std::ifstream file(folder + "/cgroup.procs");
  for (pid_t pid = 0; file >> pid;) found.push_back(pid);
  return found;
}

// Processes are held by pidfds and then looked up again: a pid that was reused meanwhile is not
// killed.
void kill_in(const std::string& folder) {
  std::vector<std::pair<pid_t, base::Fd>> held;
  for (const pid_t pid : processes_in(folder)) {
    if (pid > 0)
      held.emplace_back(pid, base::Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))));
  }
  const std::vector<pid_t> now = processes_in(folder);
  for (const auto& [pid, process] : held) {
    if (!process.valid() || std::find(now.begin(), now.end(), pid) == now.end()) continue;
    ::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0);
  }
}

void kill_all(const std::string& folder) {
  if (put(folder + "/cgroup.kill", "1")) return;
  put(folder + "/cgroup.freeze", "1");
  for (const std::string& group : with_children(folder)) kill_in(group);
  put(folder + "/cgroup.freeze", "0");
}

void freeze(const std::vector<std::string>& folders, const char* state) {
  for (const std::string& folder : folders) put(folder + "/freezer.state", state);
}

bool removed(const std::string& folder) {
  std::vector<std::string> groups = with_children(folder);
  std::reverse(groups.begin(), groups.end());
  for (const std::string& group : groups) ::rmdir(group.c_str());
  return ::access(folder.c_str(), F_OK) != 0;
}

}  // namespace

bool end_cgroups(const std::vector<std::string>& folders, base::Duration limit) {
  const base::SystemClock clock;
  const base::TimePoint deadline = clock.now() + limit;
  for (;;) {
    bool all = true;
    for (const std::string& folder : folders) all = removed(folder) && all;
    if (all) return true;
    if (clock.now() >= deadline) return false;
    freeze(folders, "FROZEN");
    for (const std::string& folder : folders) kill_all(folder);
    freeze(folders, "THAWED");
    ::poll(nullptr, 0, kCgroupRecheckMs);
  }
}

}  // namespace regroup::process
