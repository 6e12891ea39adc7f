// The kernels that gpu_kernels runs, by entry: those of collective/cuda, other shapes of the tree
// kernel among which the card chooses, and what the program needs besides.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collective/cuda/harvest_kernel.h"
#include "collective/cuda/tree_kernel.h"

namespace regroup::gpu {

// Rows of a static table; C++17, as the compiler of the kernels is told.
template <class Row>
struct Rows {
  const Row* first;
  std::size_t count;

  [[nodiscard]] const Row* begin() const { return first; }
  [[nodiscard]] const Row* end() const { return first + count; }
};

// For cudaLaunchKernel() with one parameter.
struct TreeEntry {
  const char* name;
  int bytes;                 // of an element
  std::uint32_t elements;    // of all columns of a thread
  std::uint32_t pending;     // positions of the stack
  std::uint32_t inputs;      // 0: any number, else exactly so many even ones
  std::uint32_t max_inputs;  // for which it is timed
  bool bfloat;
  const void* entry;
};
inline constexpr std::uint32_t kVariantThreads = 512;  // most threads of a block of a variant

// Shapes of float32 and bfloat16, with streaming loads, ordinary ones, and such that bypass the L1.
[[nodiscard]] Rows<TreeEntry> streaming_variants();
[[nodiscard]] Rows<TreeEntry> plain_variants();
[[nodiscard]] Rows<TreeEntry> l2_variants();

struct HarvestEntry {
  const char* name;
  const void* entry;
};
[[nodiscard]] Rows<HarvestEntry> harvest_variants();

// The entry of kernels.cu of that name; null if there is none.
[[nodiscard]] const void* kernel_entry(const char* name);

// Makes numbers between -2 and 2 of the places of 32-bit words.
struct FillArguments {
  std::uint32_t* words;
  std::uint64_t count;
  std::uint64_t seed;
};
// Adds the number of 32-bit words that differ to *differences.
struct CompareArguments {
  const std::uint32_t* a;
  const std::uint32_t* b;
  std::uint64_t count;
  unsigned long long* differences;
};
// Keeps the GPU busy for so long, so that what is launched after it waits in the queue.
struct DelayArguments {
  std::uint64_t nanoseconds;
  std::uint64_t* ended;  // written to at the end
  std::uint64_t unused;
};
extern const void* const kFillEntry;
extern const void* const kCompareEntry;
extern const void* const kDelayEntry;

}  // namespace regroup::gpu
