// The head of a store.
#include "collective/ps/store.h"

#include <fmt/format.h>

#include <cstring>

#include "collective/ps/shard_lock.h"

namespace regroup::collective::ps {

template class BasicStore<RealAccess>;

base::Status format_store(const StoreMemory& memory, const StoreSpec& spec) {
  const HeadLayout layout(memory.segment_bytes(), spec.most_segments, spec.ring_bytes);
  if (spec.ring_bytes < 4 * kPageBytes || spec.ring_bytes % kPageBytes != 0 ||
      layout.end > memory.segment_bytes() || memory.most_segments() != spec.most_segments) {
    return base::invalid_argument(
        fmt::format("store: a head of {} bytes with a log ring of {} bytes, for {} segments, does "
                    "not fit into a segment of {} bytes",
                    layout.end, spec.ring_bytes, spec.most_segments, memory.segment_bytes()));
  }
  StoreHeader* const header = &header_of(memory);
  std::memset(memory.at(0), 0, layout.ring + kLineBytes);
  header->version = kStoreVersion;
  header->most_segments = spec.most_segments;
  header->segment_bytes = memory.segment_bytes();
  header->ring_bytes = spec.ring_bytes;
  header->job_seed = spec.job_seed;
  header->segments.store(1, std::memory_order_relaxed);
  for (pthread_mutex_t* const mutex : {&header->writer, &header->turn, &header->writing})
    init_robust(*mutex);
  header->magic = kStoreMagic;
  return {};
}

base::Status check_store(const StoreMemory& memory) {
  const auto& header = *reinterpret_cast<const StoreHeader*>(memory.at(0));
  if (header.magic != kStoreMagic || header.version != kStoreVersion) {
    return base::data_loss(fmt::format("store: expected version {}, got {}{}", kStoreVersion,
                                       header.version,
                                       header.magic == kStoreMagic ? "" : " and a wrong magic"));
  }
  if (header.segment_bytes != memory.segment_bytes() ||
      header.most_segments != memory.most_segments()) {
    return base::data_loss(fmt::format(
        "store: expected at most {} segments of {} bytes, got {} of {}", header.most_segments,
        header.segment_bytes, memory.most_segments(), memory.segment_bytes()));
  }
  return {};
}

base::Result<std::vector<const RangeHeader*>> ranges_in(const StoreMemory& memory) {
  REGROUP_RETURN_IF_ERROR(check_store(memory));
  std::vector<const RangeHeader*> out;
  BasicBlocks<RealAccess>(memory).each_range([&](std::uint64_t block) {
    out.push_back(reinterpret_cast<const RangeHeader*>(memory.at(block * kBlockBytes)));
  });
  return out;
}

std::uint64_t used_bytes(const StoreMemory& memory) {
  const BasicBlocks<RealAccess> blocks(memory);
  return (blocks.blocks() - blocks.free_blocks()) * kBlockBytes;
}

std::uint64_t free_bytes(const StoreMemory& memory) {
  return BasicBlocks<RealAccess>(memory).free_blocks() * kBlockBytes;
}

base::Result<std::vector<PlacedTable>> tables_in(const StoreMemory& memory) {
  REGROUP_RETURN_IF_ERROR(check_store(memory));
  std::vector<PlacedTable> out;
  base::Status status;
  BasicBlocks<RealAccess>(memory).each_of(BlockUse::kTable, [&](std::uint64_t block) {
    const std::byte* const at = memory.at(block * kBlockBytes);
    const auto& header = *reinterpret_cast<const RangeHeader*>(at);
    base::Result<TableSpec> spec = spec_of(header);
    const std::uint64_t ranges = header.positions.last + 1 - header.positions.first;
    if (spec.ok() && ranges > kMaxRanges)
      spec = base::data_loss(fmt::format("store: table {} is damaged", spec->name));
    if (!spec.ok()) {
      status = spec.status();
      return;
    }
    const auto* const shards = reinterpret_cast<const std::uint8_t*>(at + kPageBytes);
    out.push_back({std::move(*spec), {shards, shards + ranges}});
  });
  REGROUP_RETURN_IF_ERROR(status);
  return out;
}

std::uint32_t server_of(const StoreMemory& memory) {
  return static_cast<std::uint32_t>(
      reinterpret_cast<const StoreHeader*>(memory.at(0))->server.load(std::memory_order_seq_cst));
}

std::uint64_t lost_stores(const StoreMemory& memory) {
  return reinterpret_cast<const StoreHeader*>(memory.at(0))
      ->lost_stores.load(std::memory_order_seq_cst);
}

}  // namespace regroup::collective::ps
