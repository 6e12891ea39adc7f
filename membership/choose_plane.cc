// Rules of docs/design/planes.md. Whether a plane works in a process is the process's answer
// (PlaneFacts); what depends on all members is decided here.
#include "membership/choose_plane.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

#include "base/printable.h"

namespace regroup::membership {
namespace {

using proto::Plane;

constexpr std::size_t kMostReason = 200;  // bytes of a member's text in a sentence
constexpr std::size_t kMostHosts = 4;     // hosts in a sentence

// What the rules need of all members together.
struct Job {
  std::span<const PlaneMember> members;
  const PlaneMember* first = nullptr;  // the first one whose facts are known, or null
  std::size_t hosts = 1;
  [[nodiscard]] bool device() const { return first != nullptr && first->facts->device; }
};

std::string name_of(const PlaneMember& member) {
  return fmt::format("member {}{}", member.id,
                     member.host.empty() ? "" : fmt::format(" (host {})", member.host));
}

const char* memory_of(bool device) {
  return device ? "in memory of a GPU" : "in the host's memory";
}

Job job_of(std::span<const PlaneMember> members) {
  Job job{.members = members};
  std::set<proto::NodeId> nodes;
  for (const PlaneMember& member : members) {
    nodes.insert(member.node);
    if (job.first == nullptr && member.facts != nullptr) job.first = &member;
  }
  job.hosts = nodes.size();
  return job;
}

// "one host", "2 hosts (a, b)"
std::string hosts_of(const Job& job) {
  if (job.hosts == 1) return "one host";
  std::vector<std::string> names;
  for (const PlaneMember& member : job.members) {
    if (!member.host.empty() && std::ranges::find(names, member.host) == names.end())
      names.push_back(member.host);
    if (names.size() == kMostHosts) break;
  }
  const bool more = names.size() < job.hosts;
  if (names.empty()) return fmt::format("{} hosts", job.hosts);
  return fmt::format("{} hosts ({}{})", job.hosts, fmt::join(names, ", "), more ? ", ..." : "");
}

// Fastest first. Planes that do not serve this memory or number of hosts are left out, and mpi,
// which needs all that ucx needs.
std::vector<Plane> candidates(const Job& job) {
  const bool here = job.hosts == 1;
  if (job.device()) return {here ? Plane::kCuda : Plane::kNccl, Plane::kStaged};
  return {here ? Plane::kShm : Plane::kUcx};
}

// Why a requested plane cannot serve these members, whatever their machines have; "" if it can.
std::string misfit(Plane plane, const Job& job) {
  const bool host_only = plane == Plane::kShm || plane == Plane::kUcx || plane == Plane::kMpi;
  const bool device_only =
      plane == Plane::kStaged || plane == Plane::kCuda || plane == Plane::kNccl;
  if (job.first != nullptr && (job.device() ? host_only : device_only))
    return fmt::format("it sums gradients {}, those of {} are {}", memory_of(device_only),
                       name_of(*job.first), memory_of(job.device()));
  if (job.hosts > 1 && (plane == Plane::kShm || plane == Plane::kCuda))
    return fmt::format("it serves one host, the members are on {}", hosts_of(job));
  return "";
}

// Why the plane does not work in that member; "" if it does. A member without facts looks at the
// hosts alone: on one host it has no connections, for which the others would wait.
std::string reason_in(const PlaneMember& member, Plane plane, const Job& job) {
  const bool old = plane == Plane::kShm || plane == Plane::kStaged || plane == Plane::kUcx;
  if (member.facts == nullptr && plane == Plane::kUcx && job.hosts == 1)
    return "its version uses ucx between hosts only";
  if (member.facts == nullptr) return old ? "" : "its version has no such plane";
  return base::escaped(std::string_view(member.facts->reason(plane)).substr(0, kMostReason));
}

// The reason of the first member that has one, with its name unless all say the same.
std::string reason_in_job(Plane plane, const Job& job) {
  const PlaneMember* found = nullptr;
  std::string reason;
  bool all = true;
  for (const PlaneMember& member : job.members) {
    const std::string its = reason_in(member, plane, job);
    if (found == nullptr && !its.empty()) {
      found = &member;
      reason = its;
      all = &member == job.members.data();
    } else if (found != nullptr) {
      all = all && its == reason;
    }
  }
  if (found == nullptr || all) return reason;
  return fmt::format("{}: {}", name_of(*found), reason);
}

std::string not_viable(Plane plane, const Job& job) {
  std::string reason = reason_in_job(plane, job);
  if (!reason.empty() || plane != Plane::kStaged || job.hosts == 1) return reason;
  reason = reason_in_job(Plane::kUcx, job);
  return reason.empty() ? "" : fmt::format("ucx: {}", reason);
}

std::string shown(Plane plane, const Job& job) {
  if (plane == Plane::kStaged) return job.hosts == 1 ? "staged over shm" : "staged over ucx";
  return proto::name_of(plane);
}

PlaneVerdict choose_best(const Job& job) {
  std::vector<std::string> reasons;
  for (const Plane plane : candidates(job)) {
    const std::string why = not_viable(plane, job);
    if (why.empty()) {
      const std::string because = reasons.empty()
                                      ? fmt::format("the members are on {}", hosts_of(job))
                                      : fmt::format("{}", fmt::join(reasons, "; "));
      return {plane, fmt::format("{}: {}", shown(plane, job), because)};
    }
    reasons.push_back(fmt::format("{} is not viable: {}", proto::name_of(plane), why));
  }
  return {std::nullopt, fmt::format("no data plane serves {} on {}: {}",
                                    base::counted(job.members.size(), "member"), hosts_of(job),
                                    fmt::join(reasons, "; "))};
}

PlaneVerdict choose_named(Plane plane, const Job& job) {
  std::string why = misfit(plane, job);
  if (why.empty()) {
    const std::string reason = not_viable(plane, job);
    if (reason.empty()) return {plane, fmt::format("{}: requested (--plane)", shown(plane, job))};
    why = fmt::format("it is not viable: {}", reason);
  }
  const PlaneVerdict best = choose_best(job);
  return {std::nullopt,
          fmt::format("--plane {}: {}; {}", proto::name_of(plane), why,
                      best.plane ? fmt::format("--plane {} fits", proto::name_of(*best.plane))
                                 : best.sentence)};
}

}  // namespace

std::string other_memory(const PlaneMember& member, const PlaneMember& first) {
  if (member.facts == nullptr || first.facts == nullptr ||
      member.facts->device == first.facts->device)
    return "";
  return fmt::format("its gradients are {}, those of {} {}", memory_of(member.facts->device),
                     name_of(first), memory_of(first.facts->device));
}

PlaneVerdict choose_plane(std::span<const PlaneMember> members, PlaneRequest request) {
  const Job job = job_of(members);
  for (const PlaneMember& member : members) {
    if (job.first == nullptr) break;
    const std::string why = other_memory(member, *job.first);
    if (!why.empty())
      return {std::nullopt, fmt::format("{}: {}; all members of a job need theirs in the same kind "
                                        "of memory",
                                        name_of(member), why)};
  }
  return request ? choose_named(*request, job) : choose_best(job);
}

}  // namespace regroup::membership
