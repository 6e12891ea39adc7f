// How an operation runs, and properties of the kinds of operations.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collective/operation.h"
#include "collective/reduce/tree_fold.h"
#include "collective/shm/store_tuner.h"
#include "collective/shm/sync_points.h"

namespace regroup::collective {

[[nodiscard]] constexpr bool to_root(Kind kind) { return kind == Kind::kReduce || kind == Kind::kGather; }
// The output contains a block of each rank.
[[nodiscard]] constexpr bool gathers(Kind kind) {
  return kind == Kind::kAllgather || kind == Kind::kGather || kind == Kind::kAlltoall;
}

// How an operation runs between its synchronisation points. Fixed at its start, except for what depends
// on the memory of the other ranks.
struct Plan {
  std::size_t block = 0;            // bytes per rank
  std::size_t piece = 0;            // bytes of a block in one chunk
  std::size_t stride = 0;           // in a chunk, between the parts of two ranks
  std::size_t placed = 0;           // bytes of a bounce buffer that a chunk takes
  bool contributes = true;          // this rank has a contribution
  bool in_arrival = false;          // contributions travel in the payloads of the arrivals
  bool is_copied = false;           // contributions are small: copied even if they lie in the arena
  bool uses_inline_chunks = false;  // contributions travel in inline chunks
  bool compact = false;             // chunks use a part of the ring only
  bool by_slices = false;           // each rank reduces one slice of each chunk for all
  bool direct = false;              // all inputs lie in the arena and are read in place
  bool in_results = false;          // so do results, one a rank: slices are reduced and copied there
  bool two_levels = false;          // two-level reduction (numa_domains.h)
  bool tries_single_copy = false;   // CMA is offered first; chunks begin one epoch later
  bool single_copy = false;         // each rank reads its part by CMA
  bool exits_eagerly = false;       // this rank needs nothing from its peers
  Stores stores = Stores::kPlain;
  Stores own_stores = Stores::kPlain;  // for this rank's own block
  std::size_t first_chunk = 0;         // phase of the first chunk

  [[nodiscard]] std::size_t piece_bytes(std::size_t index) const {
    return std::min(piece, block - index * piece);
  }
  // Of the store tuner for its chunks.
  [[nodiscard]] TunerKey tuner_key(Kind kind) const {
    return in_results ? TunerKey::slices_of_results() : TunerKey(kind);
  }
  [[nodiscard]] Stores stores_from(std::size_t rank, int self) const {
    return static_cast<int>(rank) == self ? own_stores : stores;
  }
  [[nodiscard]] bool streams() const { return stores == Stores::kStream || own_stores == Stores::kStream; }
  // Its data travels in chunks, unless it is read in place.
  [[nodiscard]] bool uses_bounce_buffer() const { return !in_arrival && !uses_inline_chunks; }
};

// The members of a communicator, as MPI_Group, and this member's rank.
struct ShmGroup {
  std::vector<proto::SlotIndex> slots;  // by rank
  int rank = 0;
  proto::Position instance;
  std::vector<Peer> peers;    // by rank
  bool synchronised = false;  // the members have left whatever used these channels and buffers before
};

// A recent operation with its plan, so that repeating it needs no validation and planning.
struct CachedPlan {
  Operation operation;
  CollectiveSignature signature;
  Plan plan;
  bool is_set = false;
  std::array<std::uint8_t, 2> followers{};  // cache entries that followed it, and that followed it twice
  // Needs one synchronisation point: contributions travel in arrivals or are copied.
  bool is_fast = false;
  // Runs by run_two_rank(), which uses the fields below.
  bool is_two_rank = false;
  Kernels::Close close = nullptr;  // for an allreduce
  std::uint32_t divisor = 1;
  std::size_t count = 0;  // elements
};

// Index of `other`'s part among the parts that `rank` copies in for its peers. Its own part is not among
// them.
[[nodiscard]] constexpr std::size_t part_of(std::size_t rank, std::size_t other) {
  return other <= rank ? other : other - 1;
}

}  // namespace regroup::collective
