// Adds partial sums in the order of the canonical tree (proto/canonical.h), on a GPU or, compiled
// by g++, on a CPU. One launch takes up to kMostInputs inputs, any mix of nodes of the tree, and
// writes the result over all of them; tree_plan.h makes launches of more.
//
// Inputs come in the order of their leaves. A thread adds a column of elements through all inputs:
// left operands wait on a stack in registers until their right operand is complete. The stack's
// positions are compile-time constants and every input names by bit masks what it does at each of
// them (TreeStep), equal for the whole grid: a position that was a variable, or a `break` in the
// loop over positions, would move the stack to local memory.
#pragma once

#include <cstdint>

#include "collective/cuda/arithmetic.h"

namespace regroup::collective::cuda {

inline constexpr std::uint32_t kMostInputs = 240;  // so that the parameters fit into 4 KiB
inline constexpr std::uint32_t kMostPending = 7;   // left operands that wait at the same time:
                                                   // enough for kMostInputs leaves
inline constexpr std::uint32_t kFewPending = 4;    // enough for 31 leaves

// What an input does: bit `l` is set where the sum at position `l` of the stack is added as its
// left operand, from the highest position down; bit 16 + l where the result then waits at position
// `l`. The last input's result waits nowhere: it is the sum over all inputs.
using TreeStep = std::uint32_t;

// The parameters of a launch. Pointers are aligned to 16 bytes; the result may be one of the inputs
// and must otherwise not overlap them.
struct TreeArguments {
  const void* inputs[kMostInputs];
  TreeStep steps[kMostInputs];
  void* result;
  std::uint64_t count;  // elements of each input and of the result
  std::uint32_t input_count;
  std::uint32_t divisor;  // of the sum; 1: none
};
static_assert(sizeof(TreeArguments) <= 4096);

// The thread among those of the launch.
struct Place {
  std::uint32_t block;
  std::uint32_t blocks;
  std::uint32_t thread;
  std::uint32_t threads;  // of a block
};

// The step of input `i` where all inputs are nodes of one size, as many as a power of two.
REGROUP_DEVICE constexpr TreeStep even_step(std::uint32_t i) {
  std::uint32_t waiting = 0, added = 0;
  for (std::uint32_t rest = i; rest != 0; rest &= rest - 1) ++waiting;
  for (std::uint32_t rest = i; rest % 2 == 1; rest /= 2) ++added;
  const std::uint32_t left = waiting - added;
  return ((1U << added) - 1) << left | 0x10000U << left;
}

// How a thread does its work. More registers than 64 would leave a multiprocessor too few threads.
template <int kColumnElements, int kColumnCount, int kBatchInputs, int kPositions,
          int kEvenInputs = 0, bool kDivision = false>
struct TreeShape {
  static constexpr int kColumn = kColumnElements;  // elements of a column: what one load brings
  static constexpr int kColumns = kColumnCount;    // of a thread, loaded together
  static constexpr int kBatch = kBatchInputs;      // inputs that are loaded together
  static constexpr int kPending = kPositions;      // of the stack, at most kMostPending
  static constexpr int kInputs = kEvenInputs;      // not 0: the steps are even_step()'s
  static constexpr bool kDivides = kDivision;      // costs ten registers; else the divisor is 1
};

template <class In, class Out, class Shape>
struct Tree {
  using Sum = typename In::Sum;
  static constexpr int kElements = Shape::kColumn * Shape::kColumns;  // of a thread at a time

  // What the thread at `place` does. Any grid will do.
  static REGROUP_DEVICE void run(const TreeArguments& a, Place place) {
    constexpr int kColumn = Shape::kColumn;
    const std::uint64_t columns = a.count / kColumn;
    const std::uint64_t tile = std::uint64_t{Shape::kColumns} * place.threads;
    for (std::uint64_t at = place.block * tile; at < columns; at += place.blocks * tile) {
      add_columns<Shape>(a, at + place.thread, place.threads, columns);
    }
    // Elements after the last whole column.
    using Single = TreeShape<1, 1, 1, Shape::kPending, 0, Shape::kDivides>;
    if (place.block != place.blocks - 1) return;
    for (std::uint64_t i = columns * kColumn + place.thread; i < a.count; i += place.threads)
      add_columns<Single>(a, i, 1, a.count);
  }

 private:
  // Columns first, first + stride ..., as far as they are below `end`.
  template <class S>
  static REGROUP_DEVICE void add_columns(const TreeArguments& a, std::uint64_t first,
                                         std::uint32_t stride, std::uint64_t end) {
    constexpr int kBytes = S::kColumn * In::kBytes;
    Sum waiting[S::kColumns][S::kPending][S::kColumn] REGROUP_UNSET;
    Sum sum[S::kColumns][S::kColumn] REGROUP_UNSET;
    const std::uint32_t inputs = S::kInputs != 0 ? S::kInputs : a.input_count;
    for (std::uint32_t from = 0; from < inputs; from += S::kBatch) {
      Chunk<kBytes> chunks[S::kBatch][S::kColumns];
      REGROUP_UNROLL
      for (int b = 0; b < S::kBatch; ++b) {
        if (S::kInputs == 0 && from + b >= inputs) continue;
        const char* input = static_cast<const char*>(a.inputs[from + b]);
        REGROUP_UNROLL
        for (int c = 0; c < S::kColumns; ++c) {
          const std::uint64_t column = first + std::uint64_t{stride} * c;
          if (column < end) chunks[b][c] = load<kBytes>(input + column * kBytes);
        }
      }
      REGROUP_UNROLL
      for (int b = 0; b < S::kBatch; ++b) {
        if (S::kInputs == 0 && from + b >= inputs) continue;
        const TreeStep step = S::kInputs != 0 ? even_step(from + b) : a.steps[from + b];
        REGROUP_UNROLL
        for (int c = 0; c < S::kColumns; ++c) {
          REGROUP_UNROLL
          for (int i = 0; i < S::kColumn; ++i) sum[c][i] = In::get(chunks[b][c].words, i);
        }
        take<S>(step, waiting, sum);
      }
    }
    REGROUP_UNROLL
    for (int c = 0; c < S::kColumns; ++c) {
      const std::uint64_t column = first + std::uint64_t{stride} * c;
      if (column < end) finish<S>(a, column, sum[c]);
    }
  }

  // Does `step` with the input in `sum`.
  template <class S>
  static REGROUP_DEVICE void take(TreeStep step,
                                  Sum (&waiting)[S::kColumns][S::kPending][S::kColumn],
                                  Sum (&sum)[S::kColumns][S::kColumn]) {
    if ((step & 0xffff) != 0) {  // half of the inputs jump over all positions
      REGROUP_UNROLL
      for (int l = S::kPending - 1; l >= 0; --l) {
        if ((step >> l & 1) == 0) continue;
        REGROUP_UNROLL
        for (int c = 0; c < S::kColumns; ++c) {
          REGROUP_UNROLL
          for (int i = 0; i < S::kColumn; ++i) sum[c][i] = add(waiting[c][l][i], sum[c][i]);
        }
      }
    }
    REGROUP_UNROLL
    for (int l = 0; l < S::kPending; ++l) {
      if ((step >> (16 + l) & 1) == 0) continue;
      REGROUP_UNROLL
      for (int c = 0; c < S::kColumns; ++c) {
        REGROUP_UNROLL
        for (int i = 0; i < S::kColumn; ++i) waiting[c][l][i] = sum[c][i];
      }
    }
  }

  template <class S>
  static REGROUP_DEVICE void finish(const TreeArguments& a, std::uint64_t column,
                                    Sum (&sum)[S::kColumn]) {
    constexpr int kBytes = S::kColumn * Out::kBytes;
    constexpr int kStore = kBytes < 16 ? kBytes : 16;
    char* to = static_cast<char*>(a.result) + column * kBytes;
    if (S::kDivides && a.divisor != 1) {
      const Sum by = static_cast<Sum>(a.divisor);
      REGROUP_UNROLL
      for (int i = 0; i < S::kColumn; ++i) sum[i] = divide(sum[i], by);
    }
    constexpr int kEach = kStore / Out::kBytes;
    REGROUP_UNROLL
    for (int part = 0; part < kBytes / kStore; ++part) {
      Chunk<kStore> chunk;
      REGROUP_UNROLL
      for (int i = 0; i < kEach; ++i) Out::put(chunk.words, i, sum[part * kEach + i]);
      store<kStore>(to + part * kStore, chunk);
    }
  }
};

}  // namespace regroup::collective::cuda
