// Memory after the parts of an arena, for what its maker keeps there: the tensors of a process
// group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "shmem/arena.h"

namespace regroup::shmem {

// Makes the file of `arena`, which no other process has opened yet, `bytes` longer. The memory is
// not reserved; `arena` itself does not map it, but an Arena::open() of the same file does.
[[nodiscard]] base::Status add_tail(const Arena& arena, std::uint64_t bytes);
// The tail of an arena that Arena::open() has mapped; empty if there is none.
[[nodiscard]] std::span<std::byte> tail_of(const Arena& arena);

}  // namespace regroup::shmem
