// Where an optimizer's step brings what it computes, so that a snapshot needs no copy of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace regroup::elastic {

// A part of a tensor of the state, and the memory it goes to: its bytes from `begin` on.
struct SaveTarget {
  std::string name;  // as State::tensors() has it
  std::uint64_t begin = 0;
  std::span<std::byte> memory;
};

// Of one member, since it joined. Bytes.
struct SaveCounts {
  std::uint64_t snapshots = 0;  // of which it brought a share
  std::uint64_t copied = 0;     // by the session, after the step
  std::uint64_t fused = 0;      // by the step
};

}  // namespace regroup::elastic
