// A fixed matrix product, by which the arithmetic of a GPU is checked: every block of a launch
// computes the same 64 x 64 elements from inputs that are made in registers, so that a GPU computes
// as much as it can, and any block that differs is wrong. On a GPU or, compiled by g++, on a CPU,
// with the same bits.
#pragma once

#include <cstdint>

#include "collective/cuda/arithmetic.h"
#include "collective/cuda/tree_kernel.h"

namespace regroup::collective::cuda {

inline constexpr std::uint32_t kProductThreads = 256;  // of a block
inline constexpr std::uint32_t kProductInputs = 4;     // rounds take these by turns

// The parameters of a launch.
struct ProductArguments {
  std::uint32_t* sums;        // of each thread of the launch: its words are added to it
  std::uint32_t first_round;  // rounds first_round .. first_round + rounds - 1
  std::uint32_t rounds;
};

struct Product {
  static constexpr int kElements = 1;  // of a thread at a time: its word

  static REGROUP_DEVICE void run(const ProductArguments& a, Place place) {
    std::uint32_t sum = 0;
    for (std::uint32_t i = 0; i < a.rounds; ++i)
      sum += word(place.thread, (a.first_round + i) % kProductInputs);
    a.sums[std::uint64_t{place.block} * place.threads + place.thread] += sum;
  }

  // Of the 4 x 4 elements that thread `thread` computes from inputs `number`.
  static REGROUP_DEVICE std::uint32_t word(std::uint32_t thread, std::uint32_t number) {
    const std::uint32_t row = thread / 16 * kSide, column = thread % 16 * kSide;
    float sums[kSide][kSide] = {};
    for (std::uint32_t k = number * kDepth; k < (number + 1) * kDepth; ++k) {
      float left[kSide] REGROUP_UNSET;
      float right[kSide] REGROUP_UNSET;
      REGROUP_UNROLL
      for (int i = 0; i < kSide; ++i) {
        left[i] = input(row + std::uint32_t(i), k);
        right[i] = input(k, column + std::uint32_t(i) + kRight);
      }
      REGROUP_UNROLL
      for (int i = 0; i < kSide; ++i) {
        REGROUP_UNROLL
        for (int j = 0; j < kSide; ++j) sums[i][j] = add(sums[i][j], multiply(left[i], right[j]));
      }
    }
    std::uint32_t out = 0x811c9dc5U;
    REGROUP_UNROLL
    for (int i = 0; i < kSide; ++i) {
      REGROUP_UNROLL
      for (int j = 0; j < kSide; ++j)
        out = (out ^ __builtin_bit_cast(std::uint32_t, sums[i][j])) * 0x01000193U;
    }
    return out;
  }

 private:
  static constexpr int kSide = 4;
  static constexpr std::uint32_t kDepth = 32;
  static constexpr std::uint32_t kRight = 1U << 16;  // so that the two matrices differ

  // In -1 .. 1, of 16 bits: exact.
  static REGROUP_DEVICE float input(std::uint32_t row, std::uint32_t column) {
    std::uint32_t bits = row * 0x9e3779b1U + column * 0x85ebca77U;
    bits = (bits ^ bits >> 15) * 0xc2b2ae3dU;
    return multiply(static_cast<float>(static_cast<std::int32_t>(bits) >> 16), 0x1p-15F);
  }
};

}  // namespace regroup::collective::cuda
