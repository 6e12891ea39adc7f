// A claim is the name "regroup-gpu-SCOPE/GPU", which only one socket can have;
// "regroup-gpu-SCOPE/GPU=JOB.PID.NAMESPACE" tells its owner, since containers that share a network
// see each other's claims, and each counts pids from 1. Both are read from /proc/net/unix, so no
// process has to answer. A job inside job J claims "GPU~J".
#include "launcher/process/gpu_claims.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <span>
#include <sstream>

#include "base/crc32c.h"
#include "base/unix_address.h"

namespace regroup::process {
namespace {

constexpr std::size_t kLongestGpu = 56;  // the limit of a socket name is 107

std::uint32_t checksum(const std::string& text) {
  return base::crc32c(std::as_bytes(std::span(text.data(), text.size())));
}

std::string prefix_of(const ClaimScope& scope) {
  return fmt::format("regroup-gpu-{:08x}/", checksum(scope.name));
}

// Escapes text for a name: /proc/net/unix is parsed word by word.
std::string plain(const std::string& gpu) {
  std::string out = gpu;
  for (char& c : out)
    c = std::isgraph(static_cast<unsigned char>(c)) != 0 && c != '=' && c != '~' ? c : '_';
  return out;
}

std::string shortened(const std::string& name) {
  if (name.size() <= kLongestGpu) return name;
  return fmt::format("{}.{:08x}", name.substr(0, kLongestGpu - 9), checksum(name));
}

pid_t parent_of(pid_t pid, const std::string& root) {
  std::ifstream file(fmt::format("{}/proc/{}/stat", root, pid));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream rest(text.substr(name_end + 1));
  char state = 0;
  pid_t parent = 0;
  return rest >> state >> parent ? parent : 0;
}

// This process's pid namespace; 0: unknown.
std::uint64_t own_namespace(const std::string& root) {
  struct stat found {};
  return ::stat((root + "/proc/self/ns/pid").c_str(), &found) == 0 ? found.st_ino : 0;
}

bool is_above_us(pid_t pid, const std::string& root) {
  constexpr int kMost = 1000;
  pid_t at = ::getpid();
  for (int i = 0; at > 1 && i < kMost; ++i) {
    if (at == pid) return true;
    at = parent_of(at, root);
  }
  return false;
}

GpuOwner owner_in(const std::string& text) {
  const std::size_t dot = text.find('.');
  GpuOwner out{text.substr(0, dot)};
  // Untrusted: any process can make such a name, and it is printed to a terminal.
  if (!std::ranges::all_of(out.job, [](unsigned char c) { return std::isalnum(c) != 0; }))
    out.job.clear();
  if (dot == std::string::npos) return out;
  const char* const end = text.data() + text.size();
  const char* const at = std::from_chars(text.data() + dot + 1, end, out.pid).ptr;
  if (at != end && *at == '.') std::from_chars(at + 1, end, out.processes);
  return out;
}

base::Result<base::Fd> take_name(const std::string& name) {
  REGROUP_ASSIGN_OR_RETURN(const auto address, base::abstract_address(name));
  base::Fd out(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!out.valid()) return base::system_error("socket", name, errno);
  if (::bind(out.get(), address.get(), address.size) == 0) return out;
  if (errno == EADDRINUSE) return base::unavailable(name);
  return base::system_error("bind", name, errno);
}

}  // namespace

ClaimScope claim_scope(const spec::Environment& environment, const std::string& job,
                       const ClaimScope& told) {
  const auto value = [&environment](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string() : found->second;
  };
  return {told.name.empty() ? value("REGROUP_GPU_CLAIMS") : told.name, job,
          told.outer.empty() ? value("REGROUP_JOB") : told.outer};
}

std::string GpuOwner::text() const {
  if (job.empty()) return "another job";
  return pid > 0 ? fmt::format("job {} (process {})", job, pid) : fmt::format("job {}", job);
}

ClaimedGpus::ClaimedGpus(const ClaimScope& scope, const std::string& root)
    : scope_(scope), root_(root) {
  if (scope.name == "none") return;
  std::ifstream file(root + "/proc/net/unix");
  const std::string begin = "@" + prefix_of(scope);
  for (std::string line; std::getline(file, line);) {
    const std::size_t at = line.rfind(' ');
    if (at == std::string::npos || line.compare(at + 1, begin.size(), begin) != 0) continue;
    const std::string name = line.substr(at + 1 + begin.size());
    const std::size_t equals = name.find('=');
    GpuOwner& owner = owners_[name.substr(0, equals)];
    if (equals != std::string::npos) owner = owner_in(name.substr(equals + 1));
  }
}

bool ClaimedGpus::encloses(const GpuOwner& owner) const {
  if (owner.job.empty() || owner.job == scope_.job) return false;
  if (owner.job == scope_.outer) return true;
  return owner.processes != 0 && owner.processes == own_namespace(root_) &&
         is_above_us(owner.pid, root_);
}

std::string ClaimedGpus::own_name(const std::string& gpu) const {
  constexpr int kDeepest = 64;  // nesting of jobs
  std::string name = shortened(plain(gpu));
  auto at = owners_.find(name);
  for (int i = 0; i < kDeepest && at != owners_.end() && encloses(at->second);
       ++i, at = owners_.find(name))
    name = shortened(fmt::format("{}~{}", name, at->second.job));
  return name;
}

const GpuOwner* ClaimedGpus::owner(const std::string& gpu) const {
  const auto found = owners_.find(own_name(gpu));
  if (found == owners_.end() || (!scope_.job.empty() && found->second.job == scope_.job))
    return nullptr;
  return &found->second;
}

base::Status GpuClaims::claim(const ClaimScope& scope, const std::string& gpu) {
  if (scope.name == "none" || held_.contains(gpu)) return {};
  const ClaimedGpus claimed(scope);
  const std::string name = prefix_of(scope) + claimed.own_name(gpu);
  auto taken = take_name(name);
  if (taken.code() == base::Code::kUnavailable) {
    const ClaimedGpus now(scope);
    const GpuOwner* const owner = now.owner(gpu);
    // Claimed by another process of this job.
    if (owner == nullptr && now.owners_.contains(now.own_name(gpu))) return {};
    return base::unavailable(fmt::format("GPU {} has been taken by {}", gpu,
                                         (owner != nullptr ? *owner : GpuOwner()).text()));
  }
  if (!taken.ok()) return taken.status();
  REGROUP_ASSIGN_OR_RETURN(auto owner, take_name(fmt::format("{}={}.{}.{}", name, scope.job,
                                                             ::getpid(), own_namespace(""))));
  held_[gpu] = {std::move(*taken), std::move(owner)};
  return {};
}

base::Status GpuClaims::claim_all(const ClaimScope& scope, const std::vector<std::string>& gpus) {
  std::vector<std::string> added;
  for (const std::string& gpu : gpus) {
    const bool had = held_.contains(gpu);
    if (base::Status status = claim(scope, gpu); !status.ok()) {
      for (const std::string& one : added) held_.erase(one);
      return status;
    }
    if (!had) added.push_back(gpu);
  }
  return {};
}

}  // namespace regroup::process
