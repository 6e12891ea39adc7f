// Data planes: the ways by which the gradients of members are summed. docs/design/planes.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace regroup::proto {

// The order is that of PlaneFacts in messages: a new plane goes to the end.
enum class Plane : std::uint8_t {
  kShm,     // shared memory of one host
  kStaged,  // gradients of a GPU, copied through the host; over shm, between hosts over ucx
  kCuda,    // memory of the GPUs of one host
  kUcx,     // messages between hosts, shm within each
  kNccl,    // memory of GPUs of several hosts
  kMpi,     // the user's MPI
};
inline constexpr std::size_t kPlanes = 6;

// "shm": the name in --plane and in messages to users. A static string.
[[nodiscard]] const char* name_of(Plane plane);
// nullopt: no plane has this name.
[[nodiscard]] std::optional<Plane> plane_named(std::string_view name);

// What a member knows of the planes before it is ready.
struct PlaneFacts {
  bool device = false;  // its gradients are in memory of a GPU
  // By Plane: why the plane cannot work in this process, as a part of a sentence; "": it can. Says
  // nothing of what depends on the other members, such as the number of hosts.
  std::array<std::string, kPlanes> reasons;

  [[nodiscard]] const std::string& reason(Plane plane) const {
    return reasons[static_cast<std::size_t>(plane)];
  }
  bool operator==(const PlaneFacts&) const = default;
};

}  // namespace regroup::proto
