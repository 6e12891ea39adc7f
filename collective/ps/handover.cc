// The text of descriptors, and memory for a new server.
#include "collective/ps/handover.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <utility>

#include "base/descriptor_message.h"
#include "base/text.h"
#include "collective/ps/lane.h"
#include "collective/ps/store.h"

namespace regroup::collective::ps {
namespace {

// Takes a descriptor's number from the front of `text`.
bool take_number(std::string_view& text, int& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || out < 0) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}
bool take(std::string_view& text, char c) {
  if (!text.starts_with(c)) return false;
  text.remove_prefix(1);
  return true;
}

// kResourceExhausted: this process may not have so many open files.
base::Status check_descriptors(const ServerMemorySpec& spec) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0)
    return base::system_error("getrlimit", "RLIMIT_NOFILE", errno);
  const std::uint64_t wanted = spec.shards * (std::uint64_t{1} + spec.segments);
  if (wanted < limit.rlim_cur) return {};
  return base::resource_exhausted(fmt::format(
      "memory of a parameter server: {} shards of {} segments of {} bytes need {} open files, and "
      "this process may have {} (ulimit -n); make segments larger",
      spec.shards, spec.segments, spec.segment_bytes, wanted, limit.rlim_cur));
}

}  // namespace

std::string to_text(const ServerMemory& memory) {
  std::vector<std::string> shards;
  for (const ShardMemory& shard : memory.shards)
    shards.push_back(fmt::format("{}:{}", shard.lanes, fmt::join(shard.segments, ",")));
  return fmt::format("{}", fmt::join(shards, ";"));
}

base::Result<ServerMemory> parse_server_memory(std::string_view text) {
  const std::string_view whole = text;
  ServerMemory out;
  bool more = true;
  bool good = true;
  while (more && good && out.shards.size() < kMaxShards) {
    ShardMemory& shard = out.shards.emplace_back();
    good = take_number(text, shard.lanes) && take(text, ':');
    do {
      good = good && take_number(text, shard.segments.emplace_back());
    } while (good && take(text, ','));
    more = take(text, ';');
  }
  if (good && text.empty() && !more) return out;
  return base::invalid_argument(
      fmt::format("memory of a parameter server: expected descriptors as LANES:SEGMENT,SEGMENT for "
                  "each of at most {} shards, separated by semicolons, got \"{}\"",
                  kMaxShards, base::printable_word(whole)));
}

ServerMemory OwnedServerMemory::get() const {
  ServerMemory out;
  for (const Shard& shard : shards) {
    ShardMemory& to = out.shards.emplace_back();
    to.lanes = shard.lanes.get();
    for (const base::Fd& segment : shard.segments) to.segments.push_back(segment.get());
  }
  return out;
}

ServerMemorySpec cut_into_segments(std::uint64_t bytes, std::uint32_t shards) {
  constexpr std::uint64_t kMost = 32;
  const std::uint64_t fit = base::kMostDescriptors / std::clamp(shards, 1U, kMaxShards) - 1;
  const std::uint64_t segments =
      std::clamp<std::uint64_t>(bytes / kSegmentBytes, 1, std::min(kMost, fit));
  const std::uint64_t blocks = (bytes + segments * kBlockBytes - 1) / (segments * kBlockBytes);
  const std::uint64_t most = kMaxStoreBytes / segments / kBlockBytes;
  ServerMemorySpec out;
  out.shards = shards;
  out.segments = static_cast<std::uint32_t>(segments);
  out.segment_bytes = std::clamp(blocks, kSegmentBytes / kBlockBytes, most) * kBlockBytes;
  return out;
}

base::Result<OwnedServerMemory> make_server_memory(const ServerMemorySpec& spec) {
  if (spec.shards < 1 || spec.shards > kMaxShards || spec.segments < 1) {
    return base::invalid_argument(
        fmt::format("memory of a parameter server: expected 1 to {} shards of at least 1 segment, "
                    "got {} of {}",
                    kMaxShards, spec.shards, spec.segments));
  }
  REGROUP_RETURN_IF_ERROR(check_descriptors(spec));
  OwnedServerMemory out;
  for (std::uint32_t i = 0; i < spec.shards; ++i) {
    OwnedServerMemory::Shard& shard = out.shards.emplace_back();
    for (std::uint32_t s = 0; s < spec.segments; ++s) {
      REGROUP_ASSIGN_OR_RETURN(base::Fd segment, make_segment(spec.segment_bytes));
      shard.segments.push_back(std::move(segment));
    }
    REGROUP_ASSIGN_OR_RETURN(
        const StoreMemory memory,
        StoreMemory::open(shard.segments[0].get(), spec.segments, StoreMemory::Mode::kWrite));
    REGROUP_RETURN_IF_ERROR(format_store(memory, {.job_seed = spec.job_seed,
                                                  .ring_bytes = spec.ring_bytes,
                                                  .most_segments = spec.segments}));
    REGROUP_ASSIGN_OR_RETURN(shard.lanes, Lanes::make({.shard = i,
                                                       .shards = spec.shards,
                                                       .most_segments = spec.segments,
                                                       .lanes = spec.lanes,
                                                       .lane_bytes = spec.lane_bytes}));
  }
  return out;
}

}  // namespace regroup::collective::ps
