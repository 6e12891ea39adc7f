// Sources: proc(5); complete_signal() of Linux, which makes SIGKILL pending for each thread of a
// process.
#include "launcher/process/stuck_process.h"

#include <fmt/format.h>

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <system_error>

#include "base/printable.h"

namespace regroup::process {
namespace {

namespace fs = std::filesystem;

struct Thread {
  char state = 'X';
  bool exiting = true;  // gone, or PF_EXITING, which is older than any file that the process closes
};

std::string content(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// `folder`: of a process or a thread.
Thread thread_in(const fs::path& folder) {
  constexpr unsigned kExiting = 0x4;
  const std::string stat = content(folder / "stat");
  const std::size_t name_ends = stat.rfind(')');  // the name may hold anything
  if (name_ends == std::string::npos) return {};
  std::istringstream rest(stat.substr(name_ends + 1));
  Thread out;
  rest >> out.state;
  std::string skipped;
  for (int before = 0; before < 5; ++before) rest >> skipped;  // to the foreground process group
  unsigned flags = 0;
  out.exiting = (rest >> flags) && (flags & kExiting) != 0;
  return out;
}

bool has_sigkill_pending(const fs::path& thread) {
  constexpr std::string_view kMark = "\nSigPnd:";
  const std::string status = content(thread / "status");
  const std::size_t at = status.find(kMark);
  if (at == std::string::npos) return false;
  const std::uint64_t pending = std::strtoull(status.c_str() + at + kMark.size(), nullptr, 16);
  return (pending >> (SIGKILL - 1) & 1) != 0;
}

std::string waits_in(const fs::path& thread) {
  const std::string where = content(thread / "wchan");
  return where == "0" ? "" : where;
}

}  // namespace

bool is_exiting(pid_t pid) {
  const fs::path folder = fmt::format("/proc/{}", pid);
  return fs::exists(folder / "stat") && thread_in(folder).exiting;
}

std::optional<std::string> stuck_in(pid_t pid) {
  std::optional<std::string> where;
  std::error_code error;
  for (fs::directory_iterator at(fmt::format("/proc/{}/task", pid), error), end;
       !error && at != end; at.increment(error)) {
    const Thread thread = thread_in(at->path());
    if (thread.state == 'Z' || thread.state == 'X') continue;
    const bool hangs = thread.state == 'D' && (thread.exiting || has_sigkill_pending(at->path()));
    if (!hangs) return std::nullopt;
    if (!where || where->empty()) where = waits_in(at->path());
  }
  return where;
}

std::vector<std::string> threads_besides_first(pid_t pid, std::size_t most) {
  std::vector<std::string> out;
  std::size_t more = 0;
  std::error_code error;
  for (fs::directory_iterator at(fmt::format("/proc/{}/task", pid), error), end;
       !error && at != end; at.increment(error)) {
    if (at->path().filename() == std::to_string(pid) || thread_in(at->path()).exiting) continue;
    if (out.size() == most) {
      ++more;
      continue;
    }
    std::string name = content(at->path() / "comm");
    name = base::escaped(name.substr(0, name.find('\n')));
    const std::string where = waits_in(at->path());
    out.push_back(where.empty() ? name : fmt::format("{} ({})", name, where));
  }
  if (more > 0) out.push_back(fmt::format("{} more", more));
  return out;
}

std::string hangs_in(const std::string& where) {
  return where.empty() ? "hangs in the kernel" : fmt::format("hangs in the kernel ({})", where);
}

}  // namespace regroup::process
