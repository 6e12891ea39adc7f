// Memory of an arena: limits, reservation, mapping.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/memory_limit.h"
#include "base/status.h"
#include "shmem/arena_layout.h"

namespace regroup::shmem {

using namespace arena_layout;
namespace {

struct Range {
  std::uint64_t begin, end;
  [[nodiscard]] std::uint64_t size() const { return end - begin; }
};

std::array<Range, 2> ranges_of_slot(const ArenaSpec& s, proto::SlotIndex slot) {
  const Layout layout(s);
  const std::uint64_t buffers = s.buffers_per_slot * buffer_stride(s),
                      buffer_bytes = bounce_buffer_bytes(s.slots);
  return {{{layout.buffers + slot * buffers, layout.buffers + (slot + 1) * buffers},
           {layout.bounce_buffers + slot * buffer_bytes,
            layout.bounce_buffers + (slot + 1) * buffer_bytes}}};
}

// The part that the agent reserves: header, member slots, Worlds.
Range head_range(const ArenaSpec& s) { return {0, Layout(s).results}; }

// The parts that all slots share.
std::array<Range, 2> shared_ranges(const ArenaSpec& s) {
  const Layout layout(s);
  return {{{layout.results, layout.buffers}, {layout.crcs, layout.end}}};
}

std::uint64_t sum(std::span<const Range> ranges) {
  std::uint64_t bytes = 0;
  for (const Range& range : ranges) bytes += range.size();
  return bytes;
}

base::Status check_memory(const std::string& what, std::uint64_t bytes,
                          const base::Result<base::MemoryLimit>& limit) {
  if (!limit.ok() || bytes <= limit->available) return {};
  return base::resource_exhausted(fmt::format("{}: {} bytes requested, {} available ({})", what,
                                              bytes, limit->available, limit->source));
}

// Reserves in pieces: when a signal interrupts fallocate(), the kernel undoes the whole call.
base::Status reserve(int fd, std::span<const Range> ranges, const std::string& what,
                     const std::function<void()>& done) {
  constexpr std::uint64_t kMost = 16 << 20, kLeast = 1 << 20;
  for (const Range& range : ranges) {
    std::uint64_t piece = kMost;
    for (std::uint64_t at = range.begin; at < range.end;) {
      const std::uint64_t bytes = std::min(piece, range.end - at);
      if (::fallocate(fd, 0, static_cast<off_t>(at), static_cast<off_t>(bytes)) == 0) {
        at += bytes;
        done();
      } else if (errno == EINTR) {
        piece = std::max(piece / 2, kLeast);
      } else {
        return base::resource_exhausted(fmt::format("{}: cannot reserve {} bytes: fallocate: {}",
                                                    what, sum(ranges), std::strerror(errno)));
      }
    }
  }
  return {};
}

}  // namespace

base::Status arena_layout::Reservation::take_turn(proto::SlotIndex slot) {
  constexpr std::chrono::milliseconds kPollInterval(1);
  const base::SystemClock clock;
  std::uint64_t seen = header.pieces.load(std::memory_order_acquire);
  for (base::TimePoint end = clock.now() + timeout;;) {
    std::uint32_t owner = header.reserving.load(std::memory_order_acquire);
    const bool may_take =
        owner == 0 || owner > spec.slots || owner - 1 == slot || is_dead(owner - 1);
    if (may_take && header.reserving.compare_exchange_strong(owner, slot + 1)) return {};
    if (may_take) continue;
    if (const std::uint64_t now = header.pieces.load(std::memory_order_acquire); now != seen) {
      seen = now;
      end = clock.now() + timeout;
    }
    if (clock.now() >= end) {
      return base::deadline_exceeded(
          fmt::format("arena slot {}: timed out while the owner of slot {} reserves its memory, "
                      "without progress",
                      slot, owner - 1));
    }
    std::this_thread::sleep_for(kPollInterval);
  }
}

base::Status arena_layout::Reservation::reserve_slot(proto::SlotIndex slot) {
  if (header.has(slot)) return {};
  REGROUP_RETURN_IF_ERROR(take_turn(slot));
  const auto ranges = ranges_of_slot(spec, slot), shared = shared_ranges(spec);
  const bool first = header.shared.load(std::memory_order_acquire) == 0;
  const std::string what =
      fmt::format("arena slot {}{}", slot, first ? " and the parts that all slots share" : "");
  const auto piece = [this] { header.pieces.fetch_add(1); };
  base::Status status = check_memory(what, sum(ranges) + (first ? sum(shared) : 0), limit());
  if (first && status.ok()) status = reserve(fd, shared, what, piece);
  if (first && status.ok()) header.shared.store(1, std::memory_order_release);
  if (status.ok()) status = reserve(fd, ranges, what, piece);
  if (status.ok()) header.set(slot);
  header.reserving.store(0, std::memory_order_release);
  return status;
}

base::Status Arena::reserve_head() const {
  const Range head = head_range(spec_);
  const std::uint64_t bytes =
      head.size() + sum(shared_ranges(spec_)) + sum(ranges_of_slot(spec_, 0));
  REGROUP_RETURN_IF_ERROR(check_memory("arena", bytes, base::memory_limit()));
  if (::ftruncate(memfd(), static_cast<off_t>(arena_bytes(spec_))) != 0)
    return base::system_error("ftruncate", "arena", errno);
  return reserve(memfd(), std::span(&head, 1), "arena", [] {});
}

base::Status Arena::reserve_slot(proto::SlotIndex slot) const {
  const auto is_dead = [this](proto::SlotIndex other) {
    return member_slot(other).dead.load(std::memory_order_acquire) != 0;
  };
  return arena_layout::Reservation{*reinterpret_cast<Header*>(base_), memfd(), spec_, is_dead}
      .reserve_slot(slot);
}

void Arena::populate(proto::SlotIndex own) const {
  const auto map = [this](const Range& range) {
    ::madvise(base_ + range.begin, range.size(), MADV_POPULATE_WRITE);
  };
  const Layout layout(spec_);
  map({0, layout.buffers});
  map({layout.crcs, layout.kept_results});
  map({layout.save, layout.end});
  for (proto::SlotIndex slot = 0; slot < spec_.slots; ++slot) {
    for (const Range& range : ranges_of_slot(spec_, slot)) {
      if (slot == own || reinterpret_cast<const Header*>(base_)->has(slot)) map(range);
    }
  }
}

}  // namespace regroup::shmem
