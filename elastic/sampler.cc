// The keyed permutation: a balanced Feistel network (Luby and Rackoff 1988) over 2k bits,
// cycle-walked into [0, n) (Black and Rogaway 2002).
#include "elastic/sampler.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace regroup::elastic {
namespace {

constexpr int kRounds = 4;

std::uint64_t feistel(std::uint64_t value, unsigned half_bits, std::uint64_t key) {
  const std::uint64_t mask = (1ULL << half_bits) - 1;
  std::uint64_t left = value >> half_bits;
  std::uint64_t right = value & mask;
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t next = left ^ (mix(key, right, static_cast<std::uint64_t>(round)) & mask);
    left = right;
    right = next;
  }
  return left << half_bits | right;
}

}  // namespace

std::uint64_t mix(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  std::uint64_t z = a;
  for (const std::uint64_t word : {b, c}) {
    z += 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    z = (z ^ (z >> 31)) + word * 0xd6e8feb86659fd93ULL;
  }
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

std::uint64_t permuted(std::uint64_t index, std::uint64_t n, std::uint64_t key) {
  assert(index < n);
  const auto bits = static_cast<unsigned>(std::bit_width(n - 1));
  const unsigned half_bits = std::max(1U, (bits + 1) / 2);
  std::uint64_t value = feistel(index, half_bits, key);
  while (value >= n) value = feistel(value, half_bits, key);
  return value;
}

Sampler::Sampler(std::uint64_t seed, const SamplerOptions& options)
    : seed_(seed), options_(options) {
  assert(options.samples >= 1 && options.batch >= 1 && options.shards >= 1 &&
         options.substeps >= 1);
}

std::uint64_t Sampler::batches_per_epoch() const {
  const std::uint64_t whole = options_.samples / options_.batch;
  return whole + (!options_.drop_last && options_.samples % options_.batch != 0 ? 1 : 0);
}

std::uint64_t Sampler::batch_number(proto::Step step) const {
  return (step - 1) / options_.substeps + 1;
}

Batch Sampler::batch_of(proto::Step step) const {
  assert(step >= 1);
  const std::uint64_t index = batch_number(step) - 1;
  const std::uint64_t epoch = index / batches_per_epoch();
  const std::uint64_t begin = index % batches_per_epoch() * options_.batch;
  return {epoch, begin, std::min(begin + options_.batch, options_.samples)};
}

Positions positions_of(const Batch& batch, std::uint32_t leaf, std::uint32_t shards) {
  const std::uint64_t n = batch.end - batch.begin;
  return {batch.begin + leaf * n / shards, batch.begin + (leaf + 1ULL) * n / shards};
}

std::uint64_t Sampler::sample_at(const Batch& batch, std::uint64_t position) const {
  if (!options_.shuffle) return position;
  return permuted(position, options_.samples, mix(seed_, batch.epoch, 0x5a3b1e));
}

std::vector<std::uint64_t> Sampler::samples_of(proto::Step step, std::uint32_t leaf) const {
  assert(leaf < options_.shards);
  const Batch batch = batch_of(step);
  const Positions positions = positions_of(batch, leaf, options_.shards);
  std::vector<std::uint64_t> samples;
  for (std::uint64_t at = positions.begin; at < positions.end; ++at)
    samples.push_back(sample_at(batch, at));
  return samples;
}

}  // namespace regroup::elastic
