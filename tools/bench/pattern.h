// The data that `regroup bench` moves, as C and C++: its own ranks and the rivals' program
// (tools/bench/rival_mpi.c) make and check the same. Whole numbers, so small that sums are exact in
// any order.
#pragma once

// NOLINTBEGIN(modernize-deprecated-headers, readability-identifier-naming): C has no others
#include <stdint.h>

enum pattern_kind { PATTERN_ADD, PATTERN_PRODUCT, PATTERN_BITS };
// NOLINTEND(modernize-deprecated-headers, readability-identifier-naming)

// The largest number of PATTERN_ADD, but for the iteration, in types of `size` bytes.
static inline uint32_t pattern_mask(unsigned size) { return size >= 4 ? 4095 : 63; }

// Element `index` of what rank `rank` brings to iteration `iteration`. Differs between neighbours,
// ranks and iterations.
static inline uint32_t pattern_value(enum pattern_kind kind, uint32_t mask, uint64_t index,
                                     uint32_t rank, uint32_t iteration) {
  const uint32_t hash = (((uint32_t)index + rank * 0x85EBCA6BU) * 0x9E3779B1U) >> 18;
  if (kind == PATTERN_ADD) return (hash & mask) + (iteration & 7);
  if (kind == PATTERN_PRODUCT) return 1U + (((hash + iteration) & 7) == 0);
  return (hash + iteration) & 127;
}
