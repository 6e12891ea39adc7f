// Processes are held by pidfds while they are examined, so that no other process is killed.
#include "launcher/process/process_mark.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <csignal>
#include <fstream>
#include <sstream>

#include "base/clock.h"
#include "base/fd.h"

namespace regroup::process {
namespace {

// Fields of /proc/PID/stat after the name, which may contain spaces and parentheses.
constexpr std::size_t kState = 0;
constexpr std::size_t kStart = 19;
constexpr std::chrono::milliseconds kMarkedKillLimit{
    1000};                                              // for the kernel to end killed processes
constexpr std::chrono::milliseconds kPollInterval{20};  // between two checks for stopped processes

std::vector<std::string> stat_fields(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(file, line);
  std::istringstream rest(line.substr(std::min(line.size(), line.rfind(')') + 1)));
  std::vector<std::string> fields;
  for (std::string field; rest >> field;) fields.push_back(field);
  return fields.size() > kStart ? fields : std::vector<std::string>();
}

bool is_own(pid_t pid) {
  struct stat info {};
  return ::stat(fmt::format("/proc/{}", pid).c_str(), &info) == 0 && info.st_uid == ::geteuid();
}

bool ends_within(int process, std::chrono::milliseconds limit) {
  pollfd ended{process, POLLIN, 0};
  return ::poll(&ended, 1, static_cast<int>(limit.count())) != 0;
}

void end_process(pid_t pid, const std::string& mark, const base::SystemClock& clock,
                 base::TimePoint deadline) {
  const base::Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process.valid() || process_mark(pid) != mark || !is_own(pid)) return;
  while (!ends_within(process.get(),
                      clock.now() < deadline ? kPollInterval : std::chrono::milliseconds(0))) {
    const std::vector<std::string> fields = stat_fields(pid);
    const bool stopped = !fields.empty() && (fields[kState] == "T" || fields[kState] == "t");
    if (!stopped && clock.now() < deadline) continue;
    ::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0);
    ends_within(process.get(), kMarkedKillLimit);
    return;
  }
}

}  // namespace

std::string process_mark(pid_t pid) {
  const std::vector<std::string> fields = stat_fields(pid);
  return fields.empty() ? "" : fmt::format("{} {}", pid, fields[kStart]);
}

void end_marked(const std::vector<std::string>& marks, base::Duration limit) {
  const base::SystemClock clock;
  const base::TimePoint deadline = clock.now() + limit;
  for (const std::string& mark : marks) {
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(mark.data(), mark.data() + mark.size(), pid);
    if (error == std::errc() && pid > 0) end_process(pid, mark, clock, deadline);
  }
}

}  // namespace regroup::process
