// Names of data planes.
#include "proto/plane.h"

namespace regroup::proto {
namespace {

constexpr std::array<const char*, kPlanes> kNames{"shm", "staged", "cuda", "ucx", "nccl", "mpi"};

}  // namespace

const char* name_of(Plane plane) { return kNames[static_cast<std::size_t>(plane)]; }

std::optional<Plane> plane_named(std::string_view name) {
  for (std::size_t i = 0; i < kPlanes; ++i) {
    if (name == kNames[i]) return static_cast<Plane>(i);
  }
  return std::nullopt;
}

}  // namespace regroup::proto
