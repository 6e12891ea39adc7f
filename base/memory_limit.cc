// Reads /proc/meminfo and the memory cgroup's files. cgroup v1: memory.limit_in_bytes -
// memory.usage_in_bytes of every level; v2: memory.max - memory.current. Page cache that can be
// dropped counts as used here, so inactive_file is added.
#include "base/memory_limit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

namespace regroup::base {
namespace {

std::optional<std::uint64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  if (file >> value) return value;  // "max" is no limit
  return std::nullopt;
}

// The value after `key` in a file of "key value" lines.
std::optional<std::uint64_t> read_field(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name;
    std::uint64_t value = 0;
    if (words >> name >> value && name == key) return value;
  }
  return std::nullopt;
}

struct Controller {
  std::string mount;  // of the hierarchy
  std::string path;   // of this process in it
  const char* limit;  // file names
  const char* usage;
};

// From /proc/self/cgroup: "4:memory:/a/b" (v1) or "0::/a/b" (v2).
std::vector<Controller> controllers(const std::string& root) {
  std::vector<Controller> found;
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string names = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (names == "memory") {
      found.push_back(
          {root + "/sys/fs/cgroup/memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes"});
    } else if (names.empty()) {
      found.push_back({root + "/sys/fs/cgroup", path, "memory.max", "memory.current"});
    }
  }
  return found;
}

// "/a/b", "/a", "/": the cgroup, its ancestors, and the root of the mount. In a container `path` is
// the host's and only the root of the mount exists; it has the container's limit.
std::vector<std::string> levels(std::string path) {
  std::vector<std::string> out;
  for (; path.size() > 1 && path[0] == '/'; path = path.substr(0, path.rfind('/')))
    out.push_back(path);
  out.emplace_back("/");
  return out;
}

// Replaces `best` with the limit of any level of `c` that leaves less memory.
void apply(const Controller& c, MemoryLimit* best) {
  for (const std::string& path : levels(c.path)) {
    const std::string folder = c.mount + path;
    const auto limit = number_in(folder + "/" + c.limit);
    const auto usage = number_in(folder + "/" + c.usage);
    if (!limit || !usage) continue;
    const std::uint64_t cache = read_field(folder + "/memory.stat", "inactive_file").value_or(0);
    const std::uint64_t used = *usage - std::min(*usage, cache);
    const std::uint64_t room = *limit - std::min(*limit, used);
    if (room < best->available)
      *best = {room, fmt::format("cgroup {}: {} = {}", path, c.limit, *limit)};
  }
}

}  // namespace

Result<MemoryLimit> memory_limit(const std::string& root) {
  const auto available = read_field(root + "/proc/meminfo", "MemAvailable:");
  if (!available) return system_error("read", root + "/proc/meminfo MemAvailable", ENOENT);
  MemoryLimit best{*available * 1024, "MemAvailable"};
  for (const Controller& c : controllers(root)) apply(c, &best);
  return best;
}

}  // namespace regroup::base
