// How an operation goes, and what kinds of them have in common.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collective/operation.h"
#include "collective/shm/sync_points.h"
#include "collective/shm/tree_fold.h"

namespace regroup::collective {

inline constexpr std::size_t kCacheLine = 64;

[[nodiscard]] constexpr bool to_root(Kind kind) { return kind == Kind::kReduce || kind == Kind::kGather; }
// The output has a block of each rank.
[[nodiscard]] constexpr bool gathers(Kind kind) {
  return kind == Kind::kAllgather || kind == Kind::kGather || kind == Kind::kAlltoall;
}

// How an operation goes on between its rendezvous; fixed at its start, but for what the others bring.
struct Plan {
  std::size_t block = 0;            // bytes per rank
  std::size_t piece = 0;            // of a block, per chunk
  std::size_t stride = 0;           // in a chunk, from the part for one rank to that for the next
  std::size_t placed = 0;           // of each stage, by a chunk
  bool contributes = true;          // this rank brings data
  bool in_arrival = false;          // which travels in the arrival itself
  bool is_copied = false;           // or in a stage, wherever it lies: it is small
  bool uses_inline_chunks = false;  // and there in lines that say that they are there
  bool compact = false;             // its chunks go around a part of the ring only
  bool by_slices = false;           // each rank folds a slice of each chunk for all
  bool direct = false;              // inputs lie in the arena: all at once
  bool in_results = false;          // results too, one each: slices are folded there, and copied from there
  bool two_levels = false;          // block by block, those of a NUMA node first
  bool tries_single_copy = false;   // that it goes by one copy: what is staged begins a rendezvous later
  bool single_copy = false;         // each reads what is for it where it is in the others' memory
  bool exits_eagerly = false;       // and nothing is left to do for this rank once the others can have it
  Stores stores = Stores::kPlain;
  Stores own_stores = Stores::kPlain;  // of the block that this rank gives itself
  std::size_t first_chunk = 0;         // the phase at which it is staged

  [[nodiscard]] std::size_t piece_bytes(std::size_t index) const {
    return std::min(piece, block - index * piece);
  }
  // Whose pace (pace.h) its chunks have a part in. Results in the arena have one of their own: that of a kind
  // which stages nothing.
  [[nodiscard]] Kind tuner_kind(Kind kind) const { return in_results ? Kind::kSumPartials : kind; }
  [[nodiscard]] Stores stores_from(std::size_t rank, int self) const {
    return static_cast<int>(rank) == self ? own_stores : stores;
  }
  [[nodiscard]] bool streams() const { return stores == Stores::kStream || own_stores == Stores::kStream; }
  // It travels in chunks, or would, were it not read where it is.
  [[nodiscard]] bool uses_bounce_buffer() const { return !in_arrival && !uses_inline_chunks; }
};

// Who opens a communicator, and with whom.
struct ShmGroup {
  std::vector<core::SlotIndex> slots;  // by rank
  int rank = 0;
  core::Position instance;
  std::vector<Peer> peers;    // by rank
  bool synchronised = false;  // its members are done with what came before in these channels and stages
};

// An operation of before, and what was found out about it.
struct CachedPlan {
  Operation operation;
  CollectiveSignature signature;
  Plan plan;
  bool is_set = false;
  std::array<std::uint8_t, 2> followers{};  // of all known: what came behind it, and behind it twice
  // Needs nothing but one rendezvous: what each contributes travels in it or is copied.
  bool is_fast = false;
  // Goes by run_two_rank(), for which little else matters.
  bool is_two_rank = false;
  Kernels::Close close = nullptr;  // of an allreduce
  std::uint32_t divisor = 1;
  std::size_t count = 0;  // elements
};

// Of what `rank` stages for each of the others: where `other`'s part stands. Its own is not among them.
[[nodiscard]] constexpr std::size_t part_of(std::size_t rank, std::size_t other) {
  return other <= rank ? other : other - 1;
}

}  // namespace regroup::collective
