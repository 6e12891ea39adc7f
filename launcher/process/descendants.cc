// Walks /proc/PID/task/*/children. A pass can miss a process that is being forked, so killing is
// repeated until there are no children; for a subreaper that means no descendants.
#include "launcher/process/descendants.h"

#include <dirent.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <memory>
#include <string>

#include "base/clock.h"
#include "launcher/process/reaped_child.h"

namespace regroup::process {
namespace {

constexpr timespec kChildRecheck{0, 20'000'000};

void add_children(pid_t pid, std::vector<pid_t>& out) {
  const std::string tasks = fmt::format("/proc/{}/task", pid);
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(tasks.c_str()), ::closedir);
  if (!folder) return;
  while (const dirent* entry = ::readdir(folder.get())) {
    if (entry->d_name[0] == '.') continue;
    std::ifstream children(fmt::format("{}/{}/children", tasks, entry->d_name));
    for (pid_t child = 0; children >> child;) out.push_back(child);
  }
}

void kill_each_descendant() {
  for (const pid_t victim : descendants_of(::getpid())) ::kill(victim, SIGKILL);
}

}  // namespace

void become_subreaper() { ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); }

std::vector<pid_t> descendants_of(pid_t root) {
  std::vector<pid_t> found;
  add_children(root, found);
  for (std::size_t i = 0; i < found.size(); ++i) add_children(found[i], found);
  return found;
}

bool kill_descendants(base::Duration limit, const std::function<void(pid_t, int)>& reaped,
                      bool exiting) {
  const base::SystemClock clock;
  const base::TimePoint deadline = clock.now() + limit;
  sigset_t child;
  ::sigemptyset(&child);
  ::sigaddset(&child, SIGCHLD);
  for (bool killed = exiting;;) {
    int status = 0;
    const pid_t pid = ::waitpid(-1, &status, WNOHANG);
    if (pid < 0 && errno == ECHILD) return true;
    if (pid > 0) {
      if (reaped) reaped(pid, status);
      ReapedChild::record(pid, status);
      killed = exiting;  // else its children, which are now children of this process, must be found
      continue;
    }
    if (clock.now() >= deadline) {
      kill_each_descendant();  // the machine may have stood still for all of the limit
      return false;
    }
    if (!killed) {
      kill_each_descendant();
      killed = true;
      continue;
    }
    // The timeout covers a process that was being forked during the walk.
    if (::sigtimedwait(&child, nullptr, &kChildRecheck) < 0) killed = exiting = false;
  }
}

}  // namespace regroup::process
