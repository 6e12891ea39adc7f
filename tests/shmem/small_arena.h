// The arena that the tests of shmem/arena.h use.
#pragma once

#include "shmem/arena.h"

namespace regroup::shmem {

inline ArenaSpec small_spec() {
  return {.slots = 3,
          .shards = 8,
          .buffers_per_slot = 5,
          .element_bytes = 4,
          .elements = 1000,
          .snapshot_bytes = 5000};
}

}  // namespace regroup::shmem
