// Reads the nodes of cores from sysfs, so that a job without a topology need not load hwloc.
#include "launcher/process/memory_policy.h"

#include <fmt/format.h>
#include <linux/mempolicy.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <set>
#include <sstream>

namespace regroup::process {
namespace {

constexpr std::size_t kBits = 8 * sizeof(unsigned long);
constexpr int kMostNodes = 1024;  // as the kernel

// Parses "0-2,5"; skips what is invalid.
std::set<int> numbers_in(const std::string& list) {
  std::set<int> out;
  std::istringstream rest(list.substr(std::min(list.size(), list.find_first_not_of(" \t"))));
  for (std::string part; std::getline(rest, part, ',');) {
    int first = 0;
    const char* const end = part.data() + part.size();
    const auto [dash, error] = std::from_chars(part.data(), end, first);
    if (error != std::errc()) continue;
    int last = first;
    if (dash != end && *dash == '-') std::from_chars(dash + 1, end, last);
    for (int number = first; number <= last && last < (1 << 20); ++number) out.insert(number);
  }
  return out;
}

std::string line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::set<int> allowed_nodes(const std::string& root) {
  constexpr std::string_view kName = "Mems_allowed_list:";
  std::ifstream file(root + "/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(kName)) return numbers_in(line.substr(kName.size()));
  }
  return {};
}

std::set<int> nodes_of(const std::vector<int>& cores, const std::set<int>& among,
                       const std::string& root) {
  if (cores.empty()) return among;
  std::set<int> out;
  for (const int node : among) {
    const std::set<int> there =
        numbers_in(line_of(fmt::format("{}/sys/devices/system/node/node{}/cpulist", root, node)));
    if (std::any_of(cores.begin(), cores.end(), [&](int core) { return there.contains(core); }))
      out.insert(node);
  }
  return out;
}

}  // namespace

base::Result<MemoryOrder> memory_order(spec::MemoryPolicy policy, const std::vector<int>& cores,
                                       const std::string& root) {
  MemoryOrder out;
  if (policy == spec::MemoryPolicy::kKernel) return out;
  if (policy == spec::MemoryPolicy::kLocal) {
    out.mode = MPOL_LOCAL;
    return out;
  }
  if (cores.empty() && policy != spec::MemoryPolicy::kInterleave)
    return base::invalid_argument(
        "--mem-bind bind, prefer: the member is not bound to cores; --bind-to binds it");
  std::set<int> nodes = nodes_of(cores, allowed_nodes(root), root);
  if (nodes.empty() || *nodes.rbegin() >= kMostNodes)
    return base::invalid_argument(
        "--mem-bind: the control group (cpuset.mems) leaves no memory near the member's cores");
  if (policy == spec::MemoryPolicy::kPrefer) nodes = {*nodes.begin()};
  out.mode = policy == spec::MemoryPolicy::kBind     ? MPOL_BIND
             : policy == spec::MemoryPolicy::kPrefer ? MPOL_PREFERRED
                                                     : MPOL_INTERLEAVE;
  out.nodes.resize(static_cast<std::size_t>(*nodes.rbegin()) / kBits + 1);
  for (const int node : nodes) {
    const auto number = static_cast<std::size_t>(node);
    out.nodes[number / kBits] |= 1UL << (number % kBits);
  }
  return out;
}

}  // namespace regroup::process
