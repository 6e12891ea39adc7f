// The plan of an operation: how contributions travel, in what pieces, and with which stores. All
// ranks compute the same plan, except for fields about the rank itself.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collective/shm/factory.h"
#include "collective/shm/store_tuner.h"
#include "collective/shm/sync_points.h"
#include "regroup/operation.h"

namespace regroup::collective::shm {

[[nodiscard]] constexpr bool to_root(Kind kind) {
  return kind == Kind::kReduce || kind == Kind::kGather;
}
// True if the output contains a block of each rank.
[[nodiscard]] constexpr bool gathers(Kind kind) {
  return kind == Kind::kAllgather || kind == Kind::kGather || kind == Kind::kAlltoall;
}

// How the contributions of the ranks travel. The first three are for small contributions, even if
// these are in the arena.
enum class Travel : std::uint8_t {
  kInArrivals,      // as the payloads of the arrivals
  kInInlineChunks,  // in inline chunks (inline_chunk.h)
  kInOneChunk,      // through the bounce buffer
  kInChunks,        // through the bounce buffer, unless a Route reads them in place
};

// How a rank reads the contributions of the others; decided once all ranks know each other's
// memory.
enum class Route : std::uint8_t {
  kAsItTravels,  // as Travel says
  kDirect,       // all inputs are in the arena: each rank reads them in place
  kTwoLevels,    // as kDirect, in a two-level reduction (numa_domains.h)
  // As kDirect, and each rank's result is in the arena too: each rank reduces one slice in its own
  // result, from which the others copy it.
  kInResults,
  kInAllResults,  // as kInResults, but each rank writes its slice to the results of all
  kSingleCopy,    // each rank reads its part by CMA
};

// Fixed at the start of the operation, except for what depends on the memory of other ranks.
struct Plan {
  std::size_t block = 0;       // bytes per rank
  std::size_t piece = 0;       // bytes of a block in one chunk
  std::size_t stride = 0;      // bytes between the parts of two ranks in a chunk
  std::size_t placed = 0;      // bytes of the bounce buffer that a chunk occupies
  bool contributes = true;     // this rank has a contribution
  bool compact = false;        // chunks use a part of the ring only
  bool by_slices = false;      // each rank reduces one slice of each chunk for all
  bool exits_eagerly = false;  // this rank needs nothing from its peers
  Travel travel = Travel::kInChunks;
  Route route = Route::kAsItTravels;
  reduce::Stores stores = reduce::Stores::kPlain;
  reduce::Stores own_stores = reduce::Stores::kPlain;  // for this rank's own block
  std::size_t first_chunk = 0;  // phase of the first chunk; > 0 if the ranks first offer CMA

  [[nodiscard]] bool in_arrival() const { return travel == Travel::kInArrivals; }
  [[nodiscard]] bool uses_inline_chunks() const { return travel == Travel::kInInlineChunks; }
  [[nodiscard]] bool is_copied() const { return travel != Travel::kInChunks; }
  [[nodiscard]] bool in_results() const { return route == Route::kInResults; }
  [[nodiscard]] bool single_copy() const { return route == Route::kSingleCopy; }
  // True if the ranks exchange the addresses of their memory in the first phase, for CMA.
  [[nodiscard]] bool offers_single_copy() const { return first_chunk > 0; }
  [[nodiscard]] std::size_t piece_bytes(std::size_t index) const {
    return std::min(piece, block - index * piece);
  }
  // The key of the store tuner for this plan's chunks.
  [[nodiscard]] TunerKey tuner_key(Kind kind) const {
    return in_results() ? TunerKey::slices_of_results() : TunerKey(kind);
  }
  [[nodiscard]] reduce::Stores stores_from(std::size_t rank, int self) const {
    return static_cast<int>(rank) == self ? own_stores : stores;
  }
  [[nodiscard]] bool streams() const {
    return stores == reduce::Stores::kStream || own_stores == reduce::Stores::kStream;
  }
  // True if the data travels through the bounce buffer, unless a Route reads it in place.
  [[nodiscard]] bool uses_bounce_buffer() const { return travel >= Travel::kInOneChunk; }
};

// The members of a communicator (compare MPI_Group), and this member's rank.
struct ShmGroup {
  std::vector<proto::SlotIndex> slots;  // by rank
  int rank = 0;
  proto::Position instance;
  std::vector<Peer> peers;  // by rank
  // True if every member has left all operations that used these channels and buffers before.
  bool synchronised = false;
};

// Index of `other`'s part among the parts that `rank` copies in for its peers; its own is not
// there.
[[nodiscard]] constexpr std::size_t part_of(std::size_t rank, std::size_t other) {
  return other <= rank ? other : other - 1;
}

// The inputs of a plan in addition to the operation. Equal in all members, except for the rank.
struct Planning {
  int rank;
  int size;
  bool shares_cores;  // CoreUse::shares_cores()
  InlineMode inline_mode;
  std::size_t ring_capacity;  // SlotRing::capacity()
};

// Plans `o`. `closes`: it ends with a synchronisation point. `is_part`: it is a part of an
// operation over several hosts.
[[nodiscard]] Plan plan_of(const Operation& o, const Planning& with, bool closes, bool is_part);
// Chooses the stores for the result and for this rank's own block in it. `results`: number of ranks
// that have a result. `through`: bytes of each contributor's bounce buffer in use; 0 if data is
// read in place.
void choose_stores(Plan& plan, const Operation& o, int size, std::size_t results,
                   std::size_t through);
// The stores for a shared result of `bytes` bytes that `ranks` ranks sum from inputs of that size.
[[nodiscard]] reduce::Stores stores_of_shared_result(std::size_t bytes, std::size_t ranks,
                                                     std::size_t ring_capacity);

}  // namespace regroup::collective::shm
