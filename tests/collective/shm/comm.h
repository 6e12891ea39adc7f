// Opens the communicator of one rank over an arena, for tests of the shared-memory backend.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "collective/shm/factory.h"
#include "tests/collective/harness.h"

namespace regroup::collective::testing {

// Generation 1 has a rank in each slot of the arena.
inline std::unique_ptr<Communicator> open_comm(const shmem::Arena& arena, int rank,
                                               const shm::ShmOptions& options = {}) {
  const proto::SlotId slot_id{0, static_cast<proto::SlotIndex>(rank)};
  auto comm = shm::make_shm(arena, make_world(1, arena.spec().slots), slot_id, {}, options);
  EXPECT_TRUE(comm.ok()) << comm.status().to_string();
  return std::move(comm).value();
}

}  // namespace regroup::collective::testing
