// Compares bits of the device kernels with those of the CPU's.
#pragma once

#include <cstddef>
#include <random>
#include <vector>

#include "proto/world.h"
#include "regroup/operation.h"
#include "tests/gpu/report.h"

namespace regroup::gpu {

// Trees of 1 to 17, 64 and 257 leaves of all types, the harvest; a row for each type. Counts what
// is wrong in the report.
void check_bits(Report& report, std::mt19937_64& random);

// Nodes of a tree of `leaves` leaves, each a leaf.
[[nodiscard]] std::vector<proto::Interval> leaf_nodes(std::uint32_t leaves);

}  // namespace regroup::gpu
