// One scan of all processes can miss a process that is being forked, or that has no environment yet
// during execve(), so scans repeat until two find none.
#include "launcher/process/dead_jobs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <set>

#include "base/clock.h"
#include "base/fd.h"
#include "launcher/process/job_record.h"
#include "launcher/process/proc_files.h"

namespace regroup::process {
namespace {

constexpr int kRecheckMs = 5;
constexpr int kVainLooks = 2;

std::string read_all(int file) {
  std::string text;
  std::array<char, 16384> bytes{};
  for (ssize_t count = 0; (count = ::read(file, bytes.data(), bytes.size())) > 0;) {
    text.append(bytes.data(), static_cast<std::size_t>(count));
  }
  return text;
}

// The process is of this user and job. A pidfd is held while its environment is read, so that this
// process is killed and not a later one with the same pid.
bool kill_if_of(pid_t pid, const std::string& entry) {
  const base::Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  struct stat info {};
  const base::Fd folder(::open(fmt::format("/proc/{}", pid).c_str(), O_DIRECTORY | O_CLOEXEC));
  if (!process.valid() || !folder.valid() || ::fstat(folder.get(), &info) != 0 ||
      info.st_uid != ::geteuid()) {
    return false;
  }
  const base::Fd file(::openat(folder.get(), "environ", O_RDONLY | O_CLOEXEC));
  if (!file.valid() || !has_variable(read_all(file.get()), entry)) return false;
  return ::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0) == 0;
}

DeadJob end(JobRecord& record, const base::SystemClock& clock, base::TimePoint deadline) {
  DeadJob dead{record.job()};
  const std::string entry = "REGROUP_JOB=" + launch_of(record.job());
  std::set<pid_t> killed;
  for (int looks = 0; looks < kVainLooks;) {
    bool found = false;
    for (const pid_t pid : all_processes()) {
      if (pid == ::getpid() || !kill_if_of(pid, entry)) continue;
      killed.insert(pid);
      found = true;
    }
    looks = found ? 0 : looks + 1;
    if (found && clock.now() >= deadline) dead.ended = false;
    if (!dead.ended) break;
    if (looks < kVainLooks) ::poll(nullptr, 0, kRecheckMs);
  }
  dead.killed = killed.size();
  dead.ended = dead.ended && record.clean(std::max(deadline - clock.now(), base::Duration::zero()));
  return dead;
}

}  // namespace

std::vector<DeadJob> end_dead_jobs(const std::string& folder, base::Duration limit) {
  const base::SystemClock clock;
  const base::TimePoint deadline = clock.now() + limit;
  std::vector<DeadJob> found;
  for (const std::string& path : job_records(folder)) {
    const auto record = JobRecord::take_over(path);
    if (!record) continue;
    const DeadJob dead = end(*record, clock, deadline);
    if (dead.killed > 0 || !dead.ended) found.push_back(dead);
  }
  return found;
}

bool are_dead_jobs(const std::string& folder) {
  const std::vector<std::string> paths = job_records(folder);
  return std::any_of(paths.begin(), paths.end(),
                     [](const std::string& path) { return JobRecord::take_over(path) != nullptr; });
}

}  // namespace regroup::process
