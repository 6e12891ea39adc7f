// The memory behind an arena: looked for, reserved, mapped.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <string>

#include "core/arena_layout.h"
#include "core/memory_limit.h"

namespace regroup::core {

using namespace arena_layout;
namespace {

struct Range {
  std::uint64_t begin, end;
  [[nodiscard]] std::uint64_t size() const { return end - begin; }
};

std::array<Range, 2> ranges_of_line(const ArenaSpec& s, SlotIndex slot) {
  const Layout layout(s);
  const std::uint64_t buffers = s.buffers_per_slot * buffer_stride(s), stage = stage_bytes(s.slots);
  return {{{layout.buffers + slot * buffers, layout.buffers + (slot + 1) * buffers},
           {layout.stages + slot * stage, layout.stages + (slot + 1) * stage}}};
}

// All that is not a line's.
std::array<Range, 2> shared_ranges(const ArenaSpec& s) {
  const Layout layout(s);
  return {{{0, layout.buffers}, {layout.crcs, layout.end}}};
}

std::uint64_t sum(std::span<const Range> ranges) {
  std::uint64_t bytes = 0;
  for (const Range& range : ranges) bytes += range.size();
  return bytes;
}

// Bytes of it that have no memory, or memory that nobody has touched yet.
std::uint64_t untouched(int fd, Range range) {
  std::uint64_t bytes = 0;
  for (std::uint64_t at = range.begin; at < range.end;) {
    const off_t hole = ::lseek(fd, static_cast<off_t>(at), SEEK_HOLE);
    if (hole < 0 || static_cast<std::uint64_t>(hole) >= range.end) break;
    const off_t data = ::lseek(fd, hole, SEEK_DATA);  // fails behind the last
    const std::uint64_t next = data < 0 ? range.end : std::min<std::uint64_t>(data, range.end);
    bytes += next - static_cast<std::uint64_t>(hole);
    at = next;
  }
  return bytes;
}

Status check_memory(const std::string& what, std::uint64_t bytes) {
  const auto limit = memory_limit();
  if (!limit.ok() || bytes <= limit->available) return {};
  return {Code::kResourceExhausted, fmt::format("{}: {} bytes wanted, {} available ({})", what, bytes,
                                                limit->available, limit->source)};
}

Status reserve(int fd, std::span<const Range> ranges, const std::string& what) {
  for (const Range& range : ranges) {
    if (range.size() == 0) continue;
    if (::fallocate(fd, 0, static_cast<off_t>(range.begin), static_cast<off_t>(range.size())) == 0) continue;
    return {Code::kResourceExhausted, fmt::format("{}: cannot reserve {} bytes: fallocate: {}", what,
                                                  range.size(), std::strerror(errno))};
  }
  return {};
}

}  // namespace

Status Arena::reserve_shared() const {
  const auto shared = shared_ranges(spec_);
  REGROUP_RETURN_IF_ERROR(check_memory("arena", sum(shared) + sum(ranges_of_line(spec_, 0))));
  if (::ftruncate(memfd(), static_cast<off_t>(arena_bytes(spec_))) != 0)
    return system_error("ftruncate", "arena", errno);
  return reserve(memfd(), shared, "arena");
}

Status Arena::reserve_line(SlotIndex slot) const {
  const auto mine = ranges_of_line(spec_, slot);
  const std::string what = fmt::format("arena line {}", slot);
  // Others that have just been given a line take their memory at the same time.
  std::uint64_t wanted = 0;
  for (SlotIndex other = 0; other < spec_.slots; ++other) {
    if (other != slot && line(other).occupied.load(std::memory_order_acquire) == 0) continue;
    for (const Range& range : ranges_of_line(spec_, other)) wanted += untouched(memfd(), range);
  }
  REGROUP_RETURN_IF_ERROR(check_memory(what, wanted));
  return reserve(memfd(), mine, what);
}

void Arena::populate(SlotIndex own) const {
  const auto map = [this](const Range& range) {
    ::madvise(base_ + range.begin, range.size(), MADV_POPULATE_WRITE);
  };
  const Layout layout(spec_);
  map({0, layout.buffers});
  map({layout.crcs, layout.kept});
  map({layout.save, layout.end});
  for (SlotIndex slot = 0; slot < spec_.slots; ++slot) {
    for (const Range& range : ranges_of_line(spec_, slot)) {
      if (slot == own || untouched(memfd(), range) == 0) map(range);
    }
  }
}

}  // namespace regroup::core
