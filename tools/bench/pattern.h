// The data that `regroup bench` moves, in C and C++: our ranks and the rivals' program
// (tools/bench/rival_mpi.c) make and check the same data. Whole numbers, small enough that sums are
// exact in any order.
#pragma once

// NOLINTBEGIN(modernize-deprecated-headers, readability-identifier-naming): C has no others
#include <stdint.h>

enum pattern_kind { PATTERN_ADD, PATTERN_PRODUCT, PATTERN_BITS };
// NOLINTEND(modernize-deprecated-headers, readability-identifier-naming)

// The mask of PATTERN_ADD for types of `size` bytes: values are at most this plus 7.
static inline uint32_t pattern_mask(unsigned size) { return size >= 4 ? 4095 : 63; }

// Element `index` of the input of rank `rank` in iteration `iteration`. Differs between neighbours,
// ranks and iterations.
static inline uint32_t pattern_value(enum pattern_kind kind, uint32_t mask, uint64_t index,
                                     uint32_t rank, uint32_t iteration) {
  const uint32_t hash = (((uint32_t)index + rank * 0x85EBCA6BU) * 0x9E3779B1U) >> 18;
  if (kind == PATTERN_ADD) return (hash & mask) + (iteration & 7);
  if (kind == PATTERN_PRODUCT) return 1U + (((hash + iteration) & 7) == 0);
  return (hash + iteration) & 127;
}
