// proc(5): the fields of /proc/PID/stat begin after the last ')', since a program's name may have
// any characters.
#include "launcher/metrics/usage.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <fstream>
#include <memory>
#include <sstream>
#include <string_view>

namespace regroup::metrics {
namespace {

// Reads the file with a single read(), since there is one for each process of the machine.
// `folder`: of a relative path.
std::string read_small(const std::string& path, int folder = AT_FDCWD) {
  const int fd = ::openat(folder, path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  std::array<char, 4096> bytes;
  const ssize_t count = ::read(fd, bytes.data(), bytes.size());
  ::close(fd);
  return count > 0 ? std::string(bytes.data(), static_cast<std::size_t>(count)) : std::string();
}

struct Stat {
  pid_t group = 0;
  Usage usage;
};

// Fields behind the last ')' of /proc/PID/stat, the state being the first.
enum Field : std::size_t {
  kGroup = 2,
  kUser = 11,
  kSystem,
  kWaitedUser,
  kWaitedSystem,
  kPages = 21
};

// Without streams: it is called for each process of the machine.
std::optional<Stat> parse_stat(std::string_view text) {
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string_view::npos) return {};
  std::array<std::uint64_t, kPages + 1> fields{};
  const char* at = text.data() + name_end + 1;
  const char* const end = text.data() + text.size();
  for (std::size_t i = 0; i < fields.size(); ++i) {
    while (at != end && *at == ' ') ++at;
    const char* const begin = at;
    while (at != end && *at != ' ' && *at != '\n') ++at;
    if (begin == at) return {};
    const bool used = i == kGroup || (i >= kUser && i <= kWaitedSystem) || i == kPages;
    if (used && std::from_chars(begin, at, fields.at(i)).ptr != at) return {};
  }
  static const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  static const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t spent =
      fields[kUser] + fields[kSystem] + fields[kWaitedUser] + fields[kWaitedSystem];
  return Stat{static_cast<pid_t>(fields[kGroup]),
              {static_cast<double>(spent) / ticks, fields[kPages] * page, 1}};
}

std::optional<std::uint64_t> number_in(const std::string& path) {
  std::istringstream text(read_small(path));
  std::uint64_t out = 0;
  return text >> out ? std::optional(out) : std::nullopt;
}

// The line "NAME VALUE".
std::optional<std::uint64_t> line_in(const std::string& path, const std::string& name) {
  std::istringstream text(read_small(path));
  std::string word;
  std::uint64_t value = 0;
  while (text >> word >> value) {
    if (word == name) return value;
  }
  return {};
}

}  // namespace

std::map<pid_t, Usage> usage_of_process_groups(const std::string& root) {
  std::map<pid_t, Usage> out;
  const std::string proc = root + "/proc";
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(proc.c_str()), &::closedir);
  if (folder == nullptr) return out;
  while (const dirent* entry = ::readdir(folder.get())) {
    std::string name = entry->d_name;
    if (!std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return std::isdigit(c) != 0; }))
      continue;
    const auto stat = parse_stat(read_small(name.append("/stat"), ::dirfd(folder.get())));
    if (!stat) continue;  // it has ended
    Usage& group = out[stat->group];
    group.cpu_seconds += stat->usage.cpu_seconds;
    group.memory_bytes += stat->usage.memory_bytes;
    ++group.processes;
  }
  return out;
}

std::optional<pid_t> process_group_of(pid_t pid, const std::string& root) {
  const auto stat = parse_stat(read_small(fmt::format("{}/proc/{}/stat", root, pid)));
  return stat ? std::optional(stat->group) : std::nullopt;
}

GroupUsage usage_of_control_groups(const std::vector<std::string>& folders) {
  GroupUsage out;
  for (const std::string& folder : folders) {
    if (const auto us = line_in(folder + "/cpu.stat", "usage_usec"))
      out.cpu_seconds = static_cast<double>(*us) / 1e6;
    if (const auto ns = number_in(folder + "/cpuacct.usage"))
      out.cpu_seconds = static_cast<double>(*ns) / 1e9;
    if (const auto bytes = number_in(folder + "/memory.current")) out.memory_bytes = *bytes;
    if (const auto bytes = number_in(folder + "/memory.usage_in_bytes")) out.memory_bytes = *bytes;
  }
  return out;
}

}  // namespace regroup::metrics
