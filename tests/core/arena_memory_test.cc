// Which memory an arena takes, and when.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>

#include "core/arena.h"
#include "core/memory_limit.h"

namespace regroup::core {
namespace {

using testing::HasSubstr;

ArenaSpec small_spec() {
  return {.slots = 3,
          .shards = 8,
          .buffers_per_slot = 5,
          .element_bytes = 4,
          .elements = 1000,
          .snapshot_bytes = 5000};
}

constexpr const char* kThereAndLimit = "[0-9]+ available \\((MemAvailable|cgroup .*)\\)";

std::uint64_t memory_of(const Arena& arena) {
  struct stat info {};
  EXPECT_EQ(::fstat(arena.memfd(), &info), 0);
  return static_cast<std::uint64_t>(info.st_blocks) * 512;
}

TEST(ArenaMemory, TooMuchMemoryNamesWantedThereAndTheLimit) {
  ArenaSpec spec = small_spec();
  spec.slots = 1;
  spec.elements = 1ULL << 36;
  const auto arena = Arena::create(spec);
  ASSERT_EQ(arena.code(), Code::kResourceExhausted);
  EXPECT_THAT(arena.status().message(), HasSubstr(std::to_string(arena_bytes(spec)) + " bytes wanted"));
  EXPECT_THAT(arena.status().message(), testing::ContainsRegex(kThereAndLimit));
}

TEST(ArenaMemory, ALineTakesMemoryWhenItHasAnOwner) {
  ArenaSpec spec = small_spec();
  spec.elements = 1 << 18;
  const std::uint64_t line = spec.buffers_per_slot * spec.result_bytes() + stage_bytes(spec.slots);
  auto arena = Arena::create(spec);
  ASSERT_TRUE(arena.ok()) << arena.status().to_string();
  const std::uint64_t none = memory_of(*arena);
  EXPECT_LT(none, arena_bytes(spec) - 3 * line);
  for (std::uint64_t owned = 1; owned <= spec.slots; ++owned) {
    const auto slot = static_cast<SlotIndex>(owned - 1);
    arena->assign_line(slot, slot);
    ASSERT_TRUE(arena->reserve_line(slot).ok());
    const std::uint64_t reserved = memory_of(*arena);
    arena->populate(slot);
    EXPECT_EQ(memory_of(*arena), reserved) << "of memory that is not reserved";
    EXPECT_GE(reserved, none + owned * line);
    EXPECT_LT(reserved, none + owned * line + (1 << 20));
  }
  EXPECT_EQ(memory_of(*arena), arena_bytes(spec));
}

TEST(ArenaMemory, ALineIsReservedOnce) {
  auto arena = Arena::create(small_spec());
  ASSERT_TRUE(arena.ok());
  for (MemberId owner = 0; owner < 3; ++owner) {
    arena->assign_line(1, owner);
    ASSERT_TRUE(arena->reserve_line(1).ok());
    arena->populate(1);
    if (owner == 0) std::ranges::fill(arena->buffer(1, 4), std::byte{7});
    EXPECT_EQ(arena->buffer(1, 4).back(), std::byte{7});
  }
}

// Each finds enough for itself; the last sees that all of them together do not.
TEST(ArenaMemory, LinesThatDoNotFitTogetherAreRefused) {
  const auto limit = memory_limit();
  ASSERT_TRUE(limit.ok());
  ArenaSpec spec = small_spec();
  spec.slots = kMaxSlots;
  spec.buffers_per_slot = kMaxBuffers;
  spec.elements = limit->available / spec.element_bytes / 3000;
  auto arena = Arena::create(spec);
  ASSERT_TRUE(arena.ok()) << arena.status().to_string();
  arena->assign_line(0, 0);
  EXPECT_TRUE(arena->reserve_line(0).ok());
  for (SlotIndex slot = 1; slot < spec.slots; ++slot) arena->assign_line(slot, slot);
  const std::uint64_t before = memory_of(*arena);
  const Status status = arena->reserve_line(5);
  ASSERT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), testing::ContainsRegex("^arena line 5: [0-9]+ bytes wanted, "));
  EXPECT_THAT(status.message(), testing::ContainsRegex(kThereAndLimit));
  EXPECT_EQ(memory_of(*arena), before);
}

}  // namespace
}  // namespace regroup::core
