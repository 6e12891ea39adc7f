// The version of a group shows in its files; a limit is written to those that exist.
#include "launcher/process/job_cgroup.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <sstream>
#include <utility>

#include "launcher/process/cgroup_tree.h"

namespace regroup::process {
namespace {

constexpr int kPeriodUs = 100'000;
constexpr int kLeastQuotaUs = 1'000;  // minimum of the kernel

bool there(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

base::Status write_to(const std::string& path, const std::string& text) {
  const base::Fd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file.valid()) return base::system_error("open", path, errno);
  if (::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return base::system_error("write", fmt::format("{} to {}", text, path), errno);
  }
  return {};
}

base::Status make_group(const std::string& folder) {
  if (::mkdir(folder.c_str(), 0755) == 0 || errno == EEXIST) return {};
  return base::system_error("mkdir", folder, errno);
}

std::string member_folder(const std::string& folder, proto::MemberId member) {
  return fmt::format("{}/member-{}", folder, member);
}

// The controllers that a v2 group delegates to its children.
bool hands_on(const std::string& folder, CgroupNeeds needs) {
  std::ifstream file(folder + "/cgroup.subtree_control");
  bool cpu = false;
  bool memory = false;
  for (std::string message; file >> message;) {
    cpu = cpu || message == "cpu";
    memory = memory || message == "memory";
  }
  return (cpu || !needs.cpu) && (memory || !needs.memory);
}

std::string enabling(CgroupNeeds needs) {
  return fmt::format("{}{}{}", needs.cpu ? "+cpu" : "", needs.cpu && needs.memory ? " " : "",
                     needs.memory ? "+memory" : "");
}

// A v2 group with processes, usually this process's own, cannot delegate controllers; an ancestor
// may.
base::Result<std::string> make_v2(const CgroupBranch& branch, const std::string& name,
                                  CgroupNeeds needs) {
  base::Status why(base::Code::kUnavailable, fmt::format("no control group above {} delegates {}",
                                                         branch.own, enabling(needs)));
  for (std::string at = branch.own; at.size() >= branch.mount.size(); at.resize(at.rfind('/'))) {
    const bool ours = at == branch.own;
    if (!hands_on(at, needs) &&
        !(ours && write_to(at + "/cgroup.subtree_control", enabling(needs)).ok())) {
      continue;
    }
    const std::string folder = fmt::format("{}/{}", at, name);
    // Moving a process needs write permission on the common ancestor of both groups.
    if (::access((at + "/cgroup.procs").c_str(), W_OK) != 0) {
      why = base::system_error("open", at + "/cgroup.procs", errno);
    } else if (why = make_group(folder); why.ok()) {
      why = write_to(folder + "/cgroup.subtree_control", enabling(needs));
      if (why.ok()) return folder;
      ::rmdir(folder.c_str());
    }
  }
  return why;
}

base::Status limit_cpus(const std::string& folder, double cpus) {
  const int quota = std::max(static_cast<int>(std::lround(cpus * kPeriodUs)), kLeastQuotaUs);
  if (there(folder + "/cpu.max")) {
    return write_to(folder + "/cpu.max", fmt::format("{} {}", quota, kPeriodUs));
  }
  if (!there(folder + "/cpu.cfs_quota_us")) return {};
  REGROUP_RETURN_IF_ERROR(write_to(folder + "/cpu.cfs_period_us", std::to_string(kPeriodUs)));
  return write_to(folder + "/cpu.cfs_quota_us", std::to_string(quota));
}

// Without swap: a member over its limit must end and not slow down the machine.
base::Status limit_memory(const std::string& folder, std::uint64_t bytes) {
  const std::string text = std::to_string(bytes);
  if (there(folder + "/memory.max")) {
    if (there(folder + "/memory.swap.max")) {
      REGROUP_RETURN_IF_ERROR(write_to(folder + "/memory.swap.max", "0"));
    }
    if (there(folder + "/memory.oom.group")) {
      REGROUP_RETURN_IF_ERROR(write_to(folder + "/memory.oom.group", "1"));
    }
    return write_to(folder + "/memory.max", text);
  }
  if (!there(folder + "/memory.limit_in_bytes")) return {};
  REGROUP_RETURN_IF_ERROR(write_to(folder + "/memory.limit_in_bytes", text));
  const std::string with_swap = folder + "/memory.memsw.limit_in_bytes";
  return there(with_swap) ? write_to(with_swap, text) : base::Status();
}

// The number after `name` in a file of "name number" lines.
std::uint64_t value_in(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  std::string message;
  std::uint64_t value = 0;
  while (file >> message >> value) {
    if (message == name) return value;
  }
  return 0;
}

}  // namespace

base::Result<JobCgroup> JobCgroup::make(const std::string& job, CgroupNeeds needs,
                                        const std::string& root) {
  JobCgroup group;
  if (base::Status status = group.make_groups(job, needs, root); !status.ok()) {
    for (const std::string& folder : group.folders_) ::rmdir(folder.c_str());
    return status;
  }
  return group;
}

base::Status JobCgroup::make_groups(const std::string& job, CgroupNeeds needs,
                                    const std::string& root) {
  const std::vector<CgroupBranch> branches = own_cgroups(root);
  const std::string name = "regroup-" + job;
  for (const CgroupBranch& branch : branches) {
    const bool cpu = branch.cpu && needs.cpu;
    const bool memory = branch.memory && needs.memory;
    if (branch.version != 1 || !(cpu || memory || branch.freezer)) continue;
    REGROUP_RETURN_IF_ERROR(make_group(branch.own + "/" + name));
    folders_.push_back(branch.own + "/" + name);
    if (cpu) needs.cpu = false;
    if (memory) needs.memory = false;
  }
  for (const CgroupBranch& branch : branches) {
    if (branch.version != 2 || !(needs.cpu || needs.memory)) continue;
    REGROUP_ASSIGN_OR_RETURN(auto folder, make_v2(branch, name, needs));
    folders_.push_back(std::move(folder));
    needs = {};
  }
  if (!needs.cpu && !needs.memory) return {};
  return base::unavailable(
      fmt::format("no control group has the controller {}", needs.memory ? "memory" : "cpu"));
}

base::Result<std::vector<base::Fd>> JobCgroup::add(proto::MemberId member,
                                                   const spec::Limits& limits) const {
  std::vector<base::Fd> cgroup_procs;
  for (const std::string& parent : folders_) {
    const std::string folder = member_folder(parent, member);
    base::Status status = make_group(folder);
    if (status.ok() && limits.cpus > 0) status = limit_cpus(folder, limits.cpus);
    if (status.ok() && limits.memory_bytes > 0) status = limit_memory(folder, limits.memory_bytes);
    const std::string procs = folder + "/cgroup.procs";
    if (status.ok()) cgroup_procs.emplace_back(::open(procs.c_str(), O_WRONLY | O_CLOEXEC));
    if (status.ok() && !cgroup_procs.back().valid())
      status = base::system_error("open", procs, errno);
    if (status.ok()) continue;
    remove(member);
    return status;
  }
  return cgroup_procs;
}

std::vector<std::string> JobCgroup::folders_of(proto::MemberId member) const {
  std::vector<std::string> out;
  for (const std::string& folder : folders_) out.push_back(member_folder(folder, member));
  return out;
}

std::uint64_t JobCgroup::memory_kills(proto::MemberId member) const {
  std::uint64_t kills = 0;
  for (const std::string& parent : folders_) {
    for (const char* file : {"memory.events", "memory.oom_control"}) {
      kills += value_in(member_folder(parent, member) + "/" + file, "oom_kill");
    }
  }
  return kills;
}

void JobCgroup::remove(proto::MemberId member) const {
  for (const std::string& parent : folders_) ::rmdir(member_folder(parent, member).c_str());
}

}  // namespace regroup::process
