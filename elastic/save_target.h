// Memory into which an optimizer's step writes its results for a snapshot, which then needs no copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace regroup::elastic {

// Part of a tensor, its bytes from `begin` on, and the memory that receives it.
struct SaveTarget {
  std::string name;  // as in State::tensors()
  std::uint64_t begin = 0;
  std::span<std::byte> memory;
};

// Bytes of one member since it joined.
struct SaveCounts {
  std::uint64_t snapshots = 0;  // to which it contributed a share
  std::uint64_t copied = 0;     // by the session, after the step
  std::uint64_t fused = 0;      // by the step
};

}  // namespace regroup::elastic
