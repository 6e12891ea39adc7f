// Ancestors and descendants of a process, read from /proc.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>

#include "elastic/detected_launch.h"

namespace regroup::elastic {
namespace {

constexpr std::size_t kMost = 64;  // greatest number of ancestors to read

std::string text_of(pid_t pid, const char* file) {
  std::ifstream in(fmt::format("/proc/{}/{}", pid, file), std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Stat {
  std::string name;  // may hold anything
  char state = '?';
  pid_t parent = 0;
  std::string start;
};

// Fields 2, 3, 4 and 22.
bool read_stat(pid_t pid, Stat* out) {
  const std::string text = text_of(pid, "stat");
  const std::size_t open = text.find('('), close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open) return false;
  out->name = text.substr(open + 1, close - open - 1);
  std::istringstream rest(text.substr(close + 1));
  std::string field;
  for (int number = 3; number <= 22 && rest >> field; ++number) {
    if (number == 3) out->state = field[0];
    if (number == 4) std::from_chars(field.data(), field.data() + field.size(), out->parent);
    if (number == 22) out->start = field;
  }
  return true;
}

std::map<std::string, std::string> environment_of(pid_t pid) {
  std::map<std::string, std::string> out;
  std::istringstream rest(text_of(pid, "environ"));
  for (std::string entry; std::getline(rest, entry, '\0');) {
    const std::size_t equals = entry.find('=');
    if (equals != std::string::npos) out.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return out;
}

bool maps_an_arena(pid_t pid) {
  return text_of(pid, "maps").find("/memfd:regroup-arena") != std::string::npos;
}

}  // namespace

std::vector<Ancestor> read_ancestors() {
  std::vector<Ancestor> out;
  for (pid_t pid = ::getppid(); pid > 0 && out.size() < kMost;) {
    Ancestor process;
    Stat stat;
    process.pid = pid;
    if (!read_stat(pid, &stat)) {
      out.push_back(std::move(process));  // /proc hides the rest from this user
      break;
    }
    process.name = std::move(stat.name);
    process.start = std::move(stat.start);
    process.environment = environment_of(pid);
    process.joined = maps_an_arena(pid);
    out.push_back(std::move(process));
    pid = stat.parent;
  }
  return out;
}

std::vector<Descendant> read_descendants(pid_t of) {
  std::map<pid_t, std::vector<Descendant>> children;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    Descendant process;
    Stat stat;
    const auto [end, bad] = std::from_chars(name.data(), name.data() + name.size(), process.pid);
    if (bad != std::errc() || end != name.data() + name.size() || !read_stat(process.pid, &stat))
      continue;
    process.parent = stat.parent;
    process.ended = stat.state == 'Z' || stat.state == 'X';
    children[stat.parent].push_back(std::move(process));
  }
  std::vector<Descendant> out;
  for (std::vector<pid_t> todo{of}; !todo.empty();) {
    const auto below = children.extract(todo.back());
    todo.pop_back();
    if (!below) continue;
    for (Descendant& process : below.mapped()) {
      if (!process.ended) process.environment = environment_of(process.pid);
      todo.push_back(process.pid);
      out.push_back(std::move(process));
    }
  }
  return out;
}

}  // namespace regroup::elastic
