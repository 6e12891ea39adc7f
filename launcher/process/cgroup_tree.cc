// Joins /proc/self/cgroup (hierarchy -> path of this process's group) with /proc/self/mountinfo
// (hierarchy -> folder). A mount may show only a part of its hierarchy: the path of its root is
// then stripped from the group's path.
#include "launcher/process/cgroup_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

namespace regroup::process {
namespace {

// Nothing follows the last `by`.
std::vector<std::string> split(std::string_view text, char by) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(by), text.size());
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

bool among(const std::vector<std::string>& names, const char* word) {
  return std::find(names.begin(), names.end(), word) != names.end();
}

bool is_octal(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '7'; });
}

// Spaces are escaped as \040.
std::string unescaped(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::string digits = text.substr(std::min(i + 1, text.size()), 3);
    if (text[i] == '\\' && digits.size() == 3 && is_octal(digits)) {
      out.push_back(static_cast<char>(std::stoi(digits, nullptr, 8)));
      i += 3;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

// Controller -> path of this process's group; v2 under "".
std::map<std::string, std::string> own_paths(const std::string& root) {
  std::map<std::string, std::string> paths;
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string path = line.substr(second + 1);
    const std::vector<std::string> controllers =
        split(line.substr(first + 1, second - first - 1), ',');
    if (controllers.empty()) paths[""] = path;
    for (const std::string& controller : controllers) paths[controller] = path;
  }
  return paths;
}

// `path` relative to `top`; nullopt: it is outside.
std::optional<std::string> below(const std::string& path, const std::string& top) {
  if (path.starts_with("/..")) return std::nullopt;
  if (top == "/") return path == "/" ? "" : path;
  if (path == top) return "";
  if (path.starts_with(top + "/")) return path.substr(top.size());
  return std::nullopt;
}

struct Mount {
  std::string top, folder, type;
  std::vector<std::string> options;  // mount options; controllers among them
};

std::optional<Mount> parse_mount(const std::string& line) {
  const std::vector<std::string> fields = split(line, ' ');
  const auto dash = std::find(fields.begin(), fields.end(), "-");
  if (dash - fields.begin() < 6 || fields.end() - dash < 4) return std::nullopt;
  return Mount{unescaped(fields[3]), unescaped(fields[4]), dash[1], split(dash[3], ',')};
}

std::optional<CgroupBranch> branch_of(const Mount& mount,
                                      const std::map<std::string, std::string>& paths,
                                      const std::string& root) {
  CgroupBranch branch;
  auto path = paths.end();
  if (mount.type == "cgroup2") {
    branch.version = 2;
    path = paths.find("");
  } else if (mount.type == "cgroup") {
    for (const std::string& option : mount.options) {
      if (path == paths.end() && !option.empty()) path = paths.find(option);
    }
  }
  if (path == paths.end()) return std::nullopt;
  const auto rest = below(path->second, mount.top);
  if (!rest) return std::nullopt;
  branch.mount = root + mount.folder;
  branch.own = branch.mount + *rest;
  std::vector<std::string> controllers = mount.options;
  if (branch.version == 2) {
    std::string enabled;
    std::ifstream file(branch.own + "/cgroup.controllers");
    std::getline(file, enabled);
    controllers = split(enabled, ' ');
  }
  branch.cpu = among(controllers, "cpu");
  branch.memory = among(controllers, "memory");
  branch.freezer = branch.version == 1 && among(controllers, "freezer");
  return branch;
}

}  // namespace

std::vector<CgroupBranch> own_cgroups(const std::string& root) {
  const std::map<std::string, std::string> paths = own_paths(root);
  std::vector<CgroupBranch> branches;
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.find(" - cgroup") == std::string::npos) continue;
    const auto mount = parse_mount(line);
    if (!mount) continue;
    if (auto branch = branch_of(*mount, paths, root)) branches.push_back(std::move(*branch));
  }
  return branches;
}

}  // namespace regroup::process
