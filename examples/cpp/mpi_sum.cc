// Sums gradients among the ranks of an MPI program, with bits that do not depend on the number of
// ranks: each sums the leaves (gradients of one logical shard) that it has, and all print the same
// digest whether the program runs with one rank or with eight.
#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <span>
#include <vector>

#include "regroup/mpi.h"

namespace {

constexpr std::uint32_t kLeaves = 8;
constexpr std::size_t kElements = 100'000;

// A gradient of one shard: what a training step would compute.
std::vector<float> gradient_of(std::uint32_t shard) {
  std::vector<float> out(kElements);
  std::uint32_t state = shard * 2'654'435'761U + 1;
  for (float& value : out) {
    state = state * 1'664'525U + 1'013'904'223U;
    value = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-24F;
  }
  return out;
}

// FNV-1a of the bytes.
std::uint64_t digest_of(std::span<const std::byte> bytes) {
  std::uint64_t digest = 0xcbf29ce484222325U;
  for (const std::byte each : bytes)
    digest = (digest ^ static_cast<std::uint64_t>(each)) * 0x100000001b3U;
  return digest;
}

regroup::Status sum() {
  auto comm = regroup::make_mpi(MPI_COMM_WORLD);
  if (!comm.ok()) return comm.status();
  const auto rank = static_cast<std::uint32_t>((*comm)->rank());
  const auto ranks = static_cast<std::uint32_t>((*comm)->size());
  std::vector<std::vector<float>> gradients;
  std::vector<regroup::Leaf> mine;
  for (std::uint32_t shard = rank; shard < kLeaves; shard += ranks)
    gradients.push_back(gradient_of(shard));
  for (std::uint32_t i = 0; i < gradients.size(); ++i)
    mine.push_back({rank + i * ranks, std::as_bytes(std::span(gradients[i]))});
  std::vector<float> total(kElements);
  const auto bytes = std::as_writable_bytes(std::span(total));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  const auto status =
      regroup::allreduce_leaves(**comm, mine, kLeaves, bytes, regroup::Dtype::kFloat32, deadline);
  if (status.ok())
    std::printf("sum of %u leaves: %016llx\n", kLeaves,
                static_cast<unsigned long long>(digest_of(bytes)));
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const regroup::Status status = sum();
  if (!status.ok()) {
    std::fprintf(stderr, "mpi_sum: %s\n", status.to_string().c_str());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return 0;
}
