// Assigns samples to the shards of each step by a keyed permutation of the data set per epoch,
// without storing a list. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/world.h"

namespace regroup::elastic {

// A bijection of [0, n) chosen by `key`: Feistel rounds on the smallest even number of bits that
// holds n, cycle-walking.
[[nodiscard]] std::uint64_t permuted(std::uint64_t index, std::uint64_t n, std::uint64_t key);

struct Batch {
  std::uint64_t epoch = 0;
  std::uint64_t begin = 0;  // positions in the epoch's order
  std::uint64_t end = 0;
};

// The positions of shard `leaf` in the order of the batch's epoch: [floor(i n/V), floor((i+1) n/V))
// of the batch of n samples.
struct Positions {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};
[[nodiscard]] Positions positions_of(const Batch& batch, std::uint32_t leaf, std::uint32_t shards);

// All numbers at least 1.
struct SamplerOptions {
  std::uint64_t samples = 1;   // of the data set
  std::uint64_t batch = 1;     // samples per step
  std::uint32_t shards = 1;    // V
  std::uint32_t substeps = 1;  // steps in a row that take the same batch
  bool shuffle = true;         // false: each epoch takes the samples in their order
  bool drop_last = false;      // an epoch leaves out a last batch that would be short
};

class Sampler {
 public:
  Sampler(std::uint64_t seed, const SamplerOptions& options);

  // At least 1, but for drop_last with fewer samples than a batch has.
  [[nodiscard]] std::uint64_t batches_per_epoch() const;
  // The number of the batch that a step takes, over all epochs: 1, 2, ...
  [[nodiscard]] std::uint64_t batch_number(proto::Step step) const;
  // Steps count from 1; only an epoch's last batch may be short.
  [[nodiscard]] Batch batch_of(proto::Step step) const;
  // The data set index at a position of the batch.
  [[nodiscard]] std::uint64_t sample_at(const Batch& batch, std::uint64_t position) const;
  // Data set indices of shard `leaf`.
  [[nodiscard]] std::vector<std::uint64_t> samples_of(proto::Step step, std::uint32_t leaf) const;

 private:
  std::uint64_t seed_;
  SamplerOptions options_;
};

// A well-mixed 64-bit value of the given words (SplitMix64 finaliser): keys and seeds of everything
// random.
[[nodiscard]] std::uint64_t mix(std::uint64_t a, std::uint64_t b, std::uint64_t c = 0);

}  // namespace regroup::elastic
