// How an operation runs, and properties of the kinds of operations.
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
// The output contains a block of each rank.
[[nodiscard]] constexpr bool gathers(Kind kind) {
  return kind == Kind::kAllgather || kind == Kind::kGather || kind == Kind::kAlltoall;
}

// How the contributions of the ranks travel. The first three are for small ones, which travel so
// even if they lie in the arena.
enum class Travel : std::uint8_t {
  kInArrivals,      // as the payloads of the arrivals
  kInInlineChunks,  // in inline chunks (inline_chunk.h)
  kInOneChunk,      // through the bounce buffer
  kInChunks,        // through the bounce buffer, unless they can be read where they lie (Route)
};

// How a rank gets at what the others contribute, once all know where the memory of all lies.
enum class Route : std::uint8_t {
  kAsItTravels,
  kDirect,      // all inputs lie in the arena and are read in place
  kTwoLevels,   // likewise, in a two-level reduction (numa_domains.h)
  kInResults,   // so do the results, one a rank: slices are reduced and copied there
  kSingleCopy,  // each rank reads its part by CMA
};

// How an operation runs between its synchronisation points. Fixed at its start, except for what
// depends on the memory of the other ranks.
struct Plan {
  std::size_t block = 0;       // bytes per rank
  std::size_t piece = 0;       // bytes of a block in one chunk
  std::size_t stride = 0;      // in a chunk, between the parts of two ranks
  std::size_t placed = 0;      // bytes of a bounce buffer that a chunk takes
  bool contributes = true;     // this rank has a contribution
  bool compact = false;        // chunks use a part of the ring only
  bool by_slices = false;      // each rank reduces one slice of each chunk for all
  bool exits_eagerly = false;  // this rank needs nothing from its peers
  Travel travel = Travel::kInChunks;
  Route route = Route::kAsItTravels;
  reduce::Stores stores = reduce::Stores::kPlain;
  reduce::Stores own_stores = reduce::Stores::kPlain;  // for this rank's own block
  std::size_t first_chunk = 0;  // phase of the first chunk: later where CMA is offered first

  [[nodiscard]] bool in_arrival() const { return travel == Travel::kInArrivals; }
  [[nodiscard]] bool uses_inline_chunks() const { return travel == Travel::kInInlineChunks; }
  [[nodiscard]] bool is_copied() const { return travel != Travel::kInChunks; }
  [[nodiscard]] bool in_results() const { return route == Route::kInResults; }
  [[nodiscard]] bool single_copy() const { return route == Route::kSingleCopy; }
  // The ranks exchange the addresses of their memory in the first phase, for CMA.
  [[nodiscard]] bool offers_single_copy() const { return first_chunk > 0; }
  [[nodiscard]] std::size_t piece_bytes(std::size_t index) const {
    return std::min(piece, block - index * piece);
  }
  // Of the store tuner for its chunks.
  [[nodiscard]] TunerKey tuner_key(Kind kind) const {
    return in_results() ? TunerKey::slices_of_results() : TunerKey(kind);
  }
  [[nodiscard]] reduce::Stores stores_from(std::size_t rank, int self) const {
    return static_cast<int>(rank) == self ? own_stores : stores;
  }
  [[nodiscard]] bool streams() const {
    return stores == reduce::Stores::kStream || own_stores == reduce::Stores::kStream;
  }
  // Its data travels in chunks, unless it is read in place.
  [[nodiscard]] bool uses_bounce_buffer() const { return travel >= Travel::kInOneChunk; }
};

// The members of a communicator, as MPI_Group, and this member's rank.
struct ShmGroup {
  std::vector<proto::SlotIndex> slots;  // by rank
  int rank = 0;
  proto::Position instance;
  std::vector<Peer> peers;  // by rank
  // The members have left whatever used these channels and buffers before.
  bool synchronised = false;
};

// Index of `other`'s part among the parts that `rank` copies in for its peers. Its own part is not
// among them.
[[nodiscard]] constexpr std::size_t part_of(std::size_t rank, std::size_t other) {
  return other <= rank ? other : other - 1;
}

// On what a plan depends besides the operation. Equal in all members but for the rank.
struct Planning {
  int rank;
  int size;
  bool shares_cores;  // there is not a core for each member (CoreUse::shares_cores())
  InlineMode inline_mode;
  std::size_t ring_capacity;  // SlotRing::capacity()
};

// `closes`: ends with a synchronisation point; `is_part`: of an operation over several hosts.
[[nodiscard]] Plan plan_of(const Operation& o, const Planning& with, bool closes, bool is_part);
// Chooses the stores for the result and for this rank's own block in it. `results`: number of ranks
// that have a result. `through`: bytes of each contributor's bounce buffer in use; 0 if data is
// read in place.
void choose_stores(Plan& plan, const Operation& o, int size, std::size_t results,
                   std::size_t through);
// For a result of `bytes` that `ranks` ranks sum together, each from inputs of that size.
[[nodiscard]] reduce::Stores stores_of_shared_result(std::size_t bytes, std::size_t ranks,
                                                     std::size_t ring_capacity);

}  // namespace regroup::collective::shm
