// The table of backends. A new backend adds a row.
#include "collective/backends/backends.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collective/cuda/driver.h"
#include "collective/cuda/viability.h"
#include "collective/mpi/factory.h"
#include "collective/nccl/library.h"
#include "collective/shm/factory.h"
#include "collective/ucx/factory.h"

namespace regroup::collective::backends {
namespace {

using base::Result;

// A data plane. Without a way to open communicators: staged uses those of shm and ucx, mpi that of
// ucx with a mesh that has a carrier (mpi/factory.h), cuda that of shm and nccl that of ucx, since
// gradients alone are sums on GPUs (elastic/device_plane.h).
struct Backend {
  proto::Plane plane;
  // Why it cannot work in this process, as a part of a sentence; "" if it can.
  std::string (*why_not_viable)(const GradientMemory& memory);
  // Returns why the backend cannot serve `ranks` of the World, or "" if it can; the same in all
  // members.
  std::string (*why_not)(const Endpoint& at, std::span<const int> ranks) = nullptr;
  Result<std::unique_ptr<Communicator>> (*open)(const Endpoint& at,
                                                const CommunicatorOptions& options) = nullptr;
};

std::string viable(const GradientMemory& /*memory*/) { return ""; }
std::string why_not_ucx_here(const GradientMemory& /*memory*/) { return ucx::why_not_viable(); }

// Of GPUs that cannot read each other, none may be used: which of them the other members have is
// not known here.
std::string why_not_cuda(const GradientMemory& memory) {
  if (!memory.gpu)
    return memory.device ? "the program copies its gradients to the host"
                         : "its gradients are in the host's memory";
  const auto driver = cuda::load_driver();
  std::string why = cuda::why_not_cuda(driver, *memory.gpu);
  int count = 0;
  if (!why.empty() || driver->device_count(&count) != cuda::DriverResult::kSuccess) return why;
  std::vector<int> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return cuda::why_not_between(*driver, all);
}

// Within a host it is plane cuda; what is no gradient goes over ucx.
std::string why_not_nccl(const GradientMemory& memory) {
  std::string why = why_not_cuda(memory);
  if (why.empty()) why = memory.no_nccl;
  if (!why.empty()) return why;
  why = ucx::why_not_viable();
  return why.empty() ? nccl::load_nccl().status().message() : "ucx: " + why;
}

// Its mesh connects by UCX, which also carries what is no data.
std::string why_not_mpi(const GradientMemory& memory) {
  if (memory.device) return "it sums gradients in the host's memory only";
  if (memory.mpi == nullptr) return "this process was not started with --plane mpi";
  const std::string why = ucx::why_not_viable();
  return why.empty() ? mpi::why_not_viable(*memory.mpi) : "ucx: " + why;
}

bool is_here(const Endpoint& at, int rank) {
  return at.world.members[static_cast<std::size_t>(rank)].slot_id.node == at.self.node;
}

std::string why_not_ucx(const Endpoint& at, std::span<const int> /*ranks*/) {
  return at.mesh == nullptr ? "there is no mesh to other hosts" : "";
}

// Messages between hosts; within each host, a communicator of shm.
Result<std::unique_ptr<Communicator>> open_over_ucx(const Endpoint& at,
                                                    const CommunicatorOptions& options) {
  CommunicatorOptions here = options;
  std::erase_if(here.ranks, [&](int rank) { return !is_here(at, rank); });
  REGROUP_ASSIGN_OR_RETURN(auto local, shm::make_local_shm(at.arena, at.world, at.self, here));
  return ucx::make_ucx(at.mesh, std::move(local), options);
}

std::string why_not_shm(const Endpoint& at, std::span<const int> ranks) {
  const auto other = std::ranges::find_if(ranks, [&](int rank) { return !is_here(at, rank); });
  return other == ranks.end() ? "" : fmt::format("rank {} is on another host", *other);
}

Result<std::unique_ptr<Communicator>> open_over_shm(const Endpoint& at,
                                                    const CommunicatorOptions& options) {
  return shm::make_shm(at.arena, at.world, at.self, options);
}

// Best first. If there is a mesh, even a group on one host uses ucx, so that the group fails
// together with the mesh.
constexpr Backend kBackends[] = {
    {proto::Plane::kUcx, why_not_ucx_here, why_not_ucx, open_over_ucx},
    {proto::Plane::kShm, viable, why_not_shm, open_over_shm},
    {proto::Plane::kStaged, viable},
    {proto::Plane::kCuda, why_not_cuda},
    {proto::Plane::kNccl, why_not_nccl},
    {proto::Plane::kMpi, why_not_mpi},
};
static_assert(std::size(kBackends) == proto::kPlanes);

}  // namespace

proto::PlaneFacts plane_facts(const GradientMemory& memory) {
  proto::PlaneFacts out{.device = memory.device, .reasons = {}};
  for (const Backend& backend : kBackends)
    out.reasons[static_cast<std::size_t>(backend.plane)] = backend.why_not_viable(memory);
  return out;
}

Result<std::unique_ptr<Communicator>> open_communicator(const Endpoint& at,
                                                        const CommunicatorOptions& options) {
  REGROUP_ASSIGN_OR_RETURN(auto ranks, ranks_of(at.world, options));
  CommunicatorOptions all = options;
  all.ranks = std::move(ranks);
  std::string reasons;
  for (const Backend& backend : kBackends) {
    if (backend.open == nullptr) continue;
    const std::string reason = backend.why_not(at, all.ranks);
    if (reason.empty()) return backend.open(at, all);
    reasons +=
        fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", proto::name_of(backend.plane), reason);
  }
  return base::unavailable(
      fmt::format("no backend can serve the {} ranks ({})", all.ranks.size(), reasons));
}

}  // namespace regroup::collective::backends
