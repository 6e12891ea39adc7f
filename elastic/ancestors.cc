// The processes above this one, as /proc has them.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>

#include "elastic/launch.h"

namespace regroup::elastic {
namespace {

constexpr std::size_t kMost = 64;  // processes one above the other

std::string text_of(pid_t pid, const char* file) {
  std::ifstream in(fmt::format("/proc/{}/{}", pid, file), std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Name, parent and start: fields 2, 4 and 22 of stat; the name may hold anything.
bool read_stat(pid_t pid, std::string* name, pid_t* parent, std::string* start) {
  const std::string text = text_of(pid, "stat");
  const std::size_t open = text.find('('), close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open) return false;
  *name = text.substr(open + 1, close - open - 1);
  std::istringstream rest(text.substr(close + 1));
  std::string field;
  for (int number = 3; number <= 22 && rest >> field; ++number) {
    if (number == 4) std::from_chars(field.data(), field.data() + field.size(), *parent);
    if (number == 22) *start = field;
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
    pid_t parent = 0;
    process.pid = pid;
    if (!read_stat(pid, &process.name, &parent, &process.start)) {
      out.push_back(
          std::move(process));  // where others' processes are hidden, its number is known all the same
      break;
    }
    process.environment = environment_of(pid);
    process.joined = maps_an_arena(pid);
    out.push_back(std::move(process));
    pid = parent;
  }
  return out;
}

}  // namespace regroup::elastic
