// Bytes of a store, for collective/ps only. Segment 0 begins with the head: header, one owner word
// for each block of all segments, log ring. The rest is blocks. An owner word is all that says what
// a block is; everything else that a successor needs is found from the blocks of use kRange.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "collective/ps/access.h"
#include "collective/ps/segment.h"
#include "collective/ps/table.h"

namespace regroup::collective::ps {

inline constexpr std::uint64_t kPageBytes = 4096;
inline constexpr std::uint64_t kLineBytes = 64;  // unit of the log ring
inline constexpr std::uint64_t kSlotUnit = 32;   // slots are numbered by their offset / kSlotUnit
inline constexpr std::uint64_t kStoreMagic = 0x45524f5453535052ULL;  // "RPSSTORE"
inline constexpr std::uint32_t kStoreVersion = 3;

struct StoreSpec {
  std::uint64_t job_seed = 0;
  std::uint64_t ring_bytes = 32 << 20;  // a multiple of a page
  std::uint32_t most_segments = 1024;
};

struct StoreHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t most_segments;
  std::uint64_t segment_bytes;
  std::uint64_t ring_bytes;
  std::uint64_t job_seed;
  alignas(128) pthread_mutex_t writer;  // robust: the thread that holds it is the only writer
  alignas(128) Word ring_tail;          // sequence number << 32 | line of the oldest entry
  Word segments;                        // in which blocks may be used
  // By the agent. A server that is not `server` ends its writing. The change of `views` in the
  // store of shard 0 wakes servers: 32 bits, since a futex has so many.
  alignas(128) Word server;
  std::atomic<std::uint32_t> views;
  // shard_pause.h: `turn` is held to wait for `writing`, that to change the store.
  alignas(128) pthread_mutex_t turn;
  pthread_mutex_t writing;
  Word unsettled;  // 1: a server is changing the store, or has died before its change was whole
  // In the store of shard 0, by the agent: stores of the job that are lost, a bit each by number.
  // Bits are never cleared.
  Word lost_stores;
};
static_assert(sizeof(StoreHeader) <= kPageBytes);

inline StoreHeader& header_of(const StoreMemory& memory) {
  return *reinterpret_cast<StoreHeader*>(memory.at(0));
}

constexpr std::uint64_t pages_of(std::uint64_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}
// Offsets of the parts of the head.
struct HeadLayout {
  HeadLayout(std::uint64_t segment_bytes, std::uint32_t most_segments, std::uint64_t ring_bytes)
      : blocks(segment_bytes / kBlockBytes * most_segments),
        owners(kPageBytes),
        ring(owners + pages_of(blocks * sizeof(Word))),
        end((ring + ring_bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes) {}
  explicit HeadLayout(const StoreHeader& h)
      : HeadLayout(h.segment_bytes, h.most_segments, h.ring_bytes) {}
  std::uint64_t blocks;  // of all segments
  std::uint64_t owners, ring, end;
};

// The first page of a block of use kRange; client words follow it. The words change, in this order
// for each push: index or slice, client, applied.
struct RangeHeader {
  static constexpr std::uint64_t kMagic = 0x45474e4152535052ULL;  // "RPSRANGE"
  std::uint64_t magic;
  std::uint32_t id;
  std::uint32_t crc;  // CRC32C of `positions` to the end of `name`
  PositionRange positions;
  std::uint64_t rows;
  Initializer init;
  OptimizerSpec optimizer;
  std::uint32_t dim;
  std::uint32_t evict_after;
  TableKind kind;
  Dtype dtype;
  TablePart part;
  std::array<char, 206> name;  // ends with a zero
  alignas(64) Word epoch;
  Word applied;   // LSN of the last push that is applied as a whole
  Word root;      // page of the index's directory << 32 | depth << 24 | version
  Word slices;    // offset of a dense range's two buffers
  Word current;   // LSN << 1 | buffer of the values of a dense range
  Word restored;  // step of the checkpoint that its rows come from; 0: none
  // By the process that saves the tables: the LSN as of the checkpoint of step `saved_step`.
  Word saved_lsn, saved_step;
};
// A block of use kTable, in the store of shard 0 only: a RangeHeader with id kTableId, whose
// positions are the numbers of the table's ranges, or 1 to 0 of a part without ranges; from
// kPageBytes on the shard of each, a byte.
inline constexpr std::uint32_t kTableId = ~std::uint32_t{0};
static_assert(kPageBytes + kMaxRanges <= kBlockBytes);
struct ClientWords {
  Word id;    // client + 1; 0: free
  Word last;  // the number of its last push that is applied
};
inline constexpr std::size_t kMaxClients = (kBlockBytes - kPageBytes) / sizeof(ClientWords);
static_assert(sizeof(RangeHeader) <= kPageBytes);

// A row in its slot: this header, the optimizer's state if it has at most 8 bytes, the value,
// otherwise the state.
struct RowHeader {
  std::uint64_t position;
  Word lsn;  // of the last push that changed it
  std::uint32_t updates;
  std::uint32_t reserved;
};
static_assert(sizeof(RowHeader) == 24);
struct RowShape {
  explicit RowShape(const TableSpec& spec)
      : value_bytes(spec.value_bytes()),
        state_bytes(spec.state_bytes()),
        state_at(state_bytes <= 8 ? sizeof(RowHeader) : (kValueAt + value_bytes + 3) / 4 * 4),
        bytes(
            ((state_bytes <= 8 ? kValueAt + value_bytes : state_at + state_bytes) + kSlotUnit - 1) /
            kSlotUnit * kSlotUnit) {}
  static constexpr std::size_t kValueAt = 32;
  std::size_t value_bytes, state_bytes, state_at, bytes;
};

}  // namespace regroup::collective::ps
