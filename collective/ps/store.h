// A store: all ranges of one shard on one host, in segments that outlive the server. The agent
// makes segments and calls format_store() once; a server locks the store, attaches, applies what
// the log has, serves. When it dies, the next one does the same: docs/design/ps_store.md.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/crc32c.h"
#include "base/status.h"
#include "collective/ps/range.h"
#include "collective/ps/shard_lock.h"
#include "collective/ps/store_layout.h"

namespace regroup::collective::ps {

// Writes the head of an empty store into segment 0. kInvalidArgument: it does not fit.
[[nodiscard]] base::Status format_store(const StoreMemory& memory, const StoreSpec& spec);
// kDataLoss: segment 0 is not the head of a store of this version and this size.
[[nodiscard]] base::Status check_store(const StoreMemory& memory);
// The headers of all ranges of a store, for readers. kDataLoss as check_store().
[[nodiscard]] base::Result<std::vector<const RangeHeader*>> ranges_in(const StoreMemory& memory);

// Bytes of a store's blocks that are in use, and of those that are free.
[[nodiscard]] std::uint64_t used_bytes(const StoreMemory& memory);
[[nodiscard]] std::uint64_t free_bytes(const StoreMemory& memory);

// A table and where its ranges lie, as the store of shard 0 has it.
struct PlacedTable {
  TableSpec spec;
  std::vector<std::uint32_t> shard_of;  // by range, in the order of positions
};
// All tables that a store places. kDataLoss as check_store(), or a damaged table.
[[nodiscard]] base::Result<std::vector<PlacedTable>> tables_in(const StoreMemory& memory);

// The number of the server that the agent wants to write the store. All others end their writing.
[[nodiscard]] std::uint32_t server_of(const StoreMemory& memory);
// Stores of the job that are lost, a bit each by number, as the agent knows. `memory`: of shard 0.
[[nodiscard]] std::uint64_t lost_stores(const StoreMemory& memory);

// The calling thread holds the ShardLock of `memory` as long as the store lives, and is the only
// one that uses it. Errors of attach(), besides those of the functions it calls: kDataLoss, bytes
// of the store are wrong, or blocks are used of segments that are not mapped.
template <class P>
class BasicStore {
 public:
  // Reads the log and the headers of all ranges. Nothing is applied yet: see BasicRange::apply().
  [[nodiscard]] static base::Result<std::unique_ptr<BasicStore>> attach(const StoreMemory& memory) {
    REGROUP_RETURN_IF_ERROR(check_store(memory));
    std::unique_ptr<BasicStore> store(new BasicStore(memory));
    REGROUP_RETURN_IF_ERROR(store->recover());
    return store;
  }

  // The range of this number, made if it is not there. kInvalidArgument: `spec` fails check(),
  // there are no positions, or it is there with another spec or other positions.
  // kResourceExhausted: no memory is left, or the log ring is too small for one more.
  [[nodiscard]] base::Result<BasicRange<P>*> open_range(std::uint32_t id, const TableSpec& spec,
                                                        PositionRange positions) {
    if (BasicRange<P>* const found = range(id); found != nullptr) {
      REGROUP_RETURN_IF_ERROR(check_same(spec, found->spec(), "the store"));
      if (found->header().positions == positions) return found;
      return base::invalid_argument(
          fmt::format("table {}: expected range {} from {} to {} as the store has it, got {} to {}",
                      spec.name, id, found->header().positions.first,
                      found->header().positions.last, positions.first, positions.last));
    }
    REGROUP_RETURN_IF_ERROR(check(spec));
    if (positions.first > positions.last) {
      return base::invalid_argument(fmt::format("table {}: range {} from {} to {} has no position",
                                                spec.name, id, positions.first, positions.last));
    }
    REGROUP_ASSIGN_OR_RETURN(const std::uint64_t block, blocks_.find());
    if (!ring_.keep_room_for(ranges_.size() + 1)) {
      return base::resource_exhausted(
          fmt::format("table {}: the log ring is too small for more than {} ranges", spec.name,
                      ranges_.size()));
    }
    write_header(block, id, spec, positions);
    blocks_.own(block, 1, BlockUse::kRange, id);
    ranges_[id] = std::make_unique<BasicRange<P>>(blocks_, ring_, block, spec);
    return range(id);
  }
  // Notes where the ranges of a table lie, which the store does not place yet. A crash leaves all
  // of it or nothing. kResourceExhausted: no memory is left. kInvalidArgument: `spec` fails
  // check().
  [[nodiscard]] base::Status place_table(const TableSpec& spec,
                                         std::span<const std::uint32_t> shard_of) {
    REGROUP_RETURN_IF_ERROR(check(spec));
    REGROUP_ASSIGN_OR_RETURN(const std::uint64_t block, blocks_.find());
    const bool empty = shard_of.empty();
    write_header(block, kTableId, spec,
                 empty ? PositionRange{1, 0} : PositionRange{0, shard_of.size() - 1});
    const std::vector<std::uint8_t> shards(shard_of.begin(), shard_of.end());
    P::write(blocks_.memory().at(block * kBlockBytes) + kPageBytes, shards.data(), shards.size());
    blocks_.own(block, 1, BlockUse::kTable, 0);
    return {};
  }
  // kResourceExhausted: there is no room for so many more ranges of a table.
  [[nodiscard]] base::Status check_room(const TableSpec& spec, std::size_t ranges) {
    if (const std::uint64_t free = blocks_.free_blocks(); free < ranges) {
      return base::resource_exhausted(
          fmt::format("table {}: {} ranges need {} bytes, and {} are free in {} segments of {} "
                      "bytes (--ps-memory is the limit)",
                      spec.name, ranges, ranges * kBlockBytes, free * kBlockBytes,
                      blocks_.memory().segments(), blocks_.memory().segment_bytes()));
    }
    if (ring_.keep_room_for(ranges_.size() + ranges)) return {};
    return base::resource_exhausted(
        fmt::format("table {}: the log ring is too small for {} more ranges than {}", spec.name,
                    ranges, ranges_.size()));
  }
  // Null if there is none.
  [[nodiscard]] BasicRange<P>* range(std::uint32_t id) const {
    const auto found = ranges_.find(id);
    return found == ranges_.end() ? nullptr : found->second.get();
  }
  // Calls visit(range) for each range, by number.
  template <class Visit>
  void each(Visit visit) const {
    for (const auto& [id, range] : ranges_) visit(*range);
  }

  // Gives the room of pushes that are applied, or void, back to the log ring.
  void release_log() {
    ring_.release(
        [this](const LogEntry& entry) { return !range(entry.fields.range)->needs(entry); });
  }
  [[nodiscard]] std::uint64_t free_bytes() const { return blocks_.free_blocks() * kBlockBytes; }

 private:
  explicit BasicStore(const StoreMemory& memory) : blocks_(memory), ring_(memory) {}

  [[nodiscard]] base::Status recover() {
    const StoreMemory& memory = blocks_.memory();
    const std::uint64_t segments =
        reinterpret_cast<const StoreHeader*>(memory.at(0))->segments.load();
    if (segments > memory.segments()) {
      return base::data_loss(
          fmt::format("store: expected {} segments, got {}", segments, memory.segments()));
    }
    base::Status status;
    blocks_.each_range([&](std::uint64_t block) {
      const auto* const header =
          reinterpret_cast<const RangeHeader*>(blocks_.memory().at(block * kBlockBytes));
      base::Result<TableSpec> spec = spec_of(*header);
      if (!spec.ok()) {
        status = spec.status();
        return;
      }
      ranges_[header->id] =
          std::make_unique<BasicRange<P>>(blocks_, ring_, block, std::move(*spec));
    });
    REGROUP_RETURN_IF_ERROR(status);
    REGROUP_RETURN_IF_ERROR(ring_.recover());
    if (!ring_.keep_room_for(ranges_.size())) {
      return base::data_loss(
          fmt::format("store: {} ranges are too many for its log ring", ranges_.size()));
    }
    ring_.each([&](const LogEntry& entry) {
      if (BasicRange<P>* const its = range(entry.fields.range); its != nullptr) {
        its->add_found(entry);
      } else {
        status =
            base::data_loss(fmt::format("store: the log has a push to range {}, which is not "
                                        "there",
                                        entry.fields.range));
      }
    });
    return status;
  }

  void write_header(std::uint64_t block, std::uint32_t id, const TableSpec& spec,
                    PositionRange positions) {
    std::byte* const to = blocks_.memory().at(block * kBlockBytes);
    P::clear(to, kBlockBytes);
    RangeHeader header{.magic = RangeHeader::kMagic,
                       .id = id,
                       .crc = 0,
                       .positions = positions,
                       .rows = spec.rows,
                       .init = spec.init,
                       .optimizer = spec.optimizer,
                       .dim = spec.dim,
                       .evict_after = spec.evict_after,
                       .kind = spec.kind,
                       .dtype = spec.dtype,
                       .part = spec.part,
                       .name = {}};
    std::ranges::copy(spec.name, header.name.begin());
    const auto* const from = reinterpret_cast<const std::byte*>(&header);
    const std::size_t begin = offsetof(RangeHeader, positions);
    const std::size_t end = offsetof(RangeHeader, name) + sizeof header.name;
    // The CRC is that of the bytes in the store, padding included.
    P::write(to + begin, from + begin, end - begin);
    header.crc = base::crc32c({to + begin, end - begin});
    P::write(to, from, begin);
  }

  BasicBlocks<P> blocks_;
  BasicRing<P> ring_;
  std::map<std::uint32_t, std::unique_ptr<BasicRange<P>>> ranges_;
};

extern template class BasicStore<RealAccess>;
using Store = BasicStore<RealAccess>;
using Range = BasicRange<RealAccess>;

}  // namespace regroup::collective::ps
