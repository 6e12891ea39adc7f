// Which memory an arena takes, and when.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "base/memory_limit.h"
#include "shmem/arena_layout.h"
#include "tests/shmem/small_arena.h"

namespace regroup::shmem {
namespace {

using testing::HasSubstr;

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
  ASSERT_EQ(arena.code(), base::Code::kResourceExhausted);
  EXPECT_THAT(arena.status().message(),
              HasSubstr(std::to_string(arena_bytes(spec)) + " bytes requested"));
  EXPECT_THAT(arena.status().message(), testing::ContainsRegex(kThereAndLimit));
}

TEST(ArenaMemory, ASlotTakesMemoryWhenItHasAnOwner) {
  ArenaSpec spec = small_spec();
  spec.elements = 1 << 20;
  const std::uint64_t slot_bytes =
      spec.buffers_per_slot * spec.result_bytes() + bounce_buffer_bytes(spec.slots);
  auto arena = Arena::create(spec);
  ASSERT_TRUE(arena.ok()) << arena.status().to_string();
  // The agent is heard while the memory of a large state is reserved: it does not do that itself.
  EXPECT_LT(memory_of(*arena), spec.result_bytes());
  std::uint64_t before = 0;  // with the parts that all slots share, after the first reservation
  for (std::uint64_t owned = 1; owned <= spec.slots; ++owned) {
    const auto slot = static_cast<proto::SlotIndex>(owned - 1);
    arena->assign_slot(slot, slot);
    ASSERT_TRUE(arena->reserve_slot(slot).ok());
    const std::uint64_t reserved = memory_of(*arena);
    arena->populate(slot);
    EXPECT_EQ(memory_of(*arena), reserved) << "of memory that is not reserved";
    if (owned > 1) {
      EXPECT_GE(reserved, before + slot_bytes);
      EXPECT_LT(reserved, before + slot_bytes + (1 << 20));
    }
    before = reserved;
  }
  EXPECT_EQ(memory_of(*arena), arena_bytes(spec));
}

TEST(ArenaMemory, ASlotIsReservedOnce) {
  auto arena = Arena::create(small_spec());
  ASSERT_TRUE(arena.ok());
  for (proto::MemberId owner = 0; owner < 3; ++owner) {
    arena->assign_slot(1, owner);
    ASSERT_TRUE(arena->reserve_slot(1).ok());
    arena->populate(1);
    if (owner == 0) std::ranges::fill(arena->buffer(1, 4), std::byte{7});
    EXPECT_EQ(arena->buffer(1, 4).back(), std::byte{7});
  }
}

class ReservedSlots : public testing::Test {
 protected:
  ReservedSlots() {
    auto made = Arena::create(small_spec());
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    arena_ = std::move(*made);
    void* header = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, arena_.memfd(), 0);
    EXPECT_NE(header, MAP_FAILED);
    header_ = static_cast<arena_layout::Header*>(header);
  }
  ~ReservedSlots() override { ::munmap(header_, 4096); }

  base::Status reserve(proto::SlotIndex slot, std::uint64_t available,
                       base::Duration timeout = std::chrono::seconds(5)) {
    const auto limit = [available] {
      return base::Result<base::MemoryLimit>(base::MemoryLimit{available, "what a test says"});
    };
    const auto is_dead = [this](proto::SlotIndex other) { return dead_ == other; };
    return arena_layout::Reservation{*header_, arena_.memfd(), spec_, is_dead, limit, timeout}
        .reserve_slot(slot);
  }

  Arena arena_;
  const ArenaSpec spec_ = small_spec();
  arena_layout::Header* header_ = nullptr;
  std::atomic<proto::SlotIndex> dead_{proto::kMaxSlots};
};

TEST_F(ReservedSlots, ThatDoNotFitAreRefusedAndLetTheNextTry) {
  const std::uint64_t before = memory_of(arena_);
  const base::Status status = reserve(1, 5000);
  ASSERT_EQ(status.code(), base::Code::kResourceExhausted);
  EXPECT_THAT(
      status.message(),
      testing::ContainsRegex("^arena slot 1 and the parts that all slots share: [0-9]+ bytes "
                             "requested, 5000 available \\(what a test says\\)$"));
  EXPECT_EQ(memory_of(arena_), before);
  EXPECT_TRUE(reserve(2, 1 << 30).ok());
  EXPECT_TRUE(reserve(2, 0).ok()) << "it has what it needs";
  EXPECT_GT(memory_of(arena_), before);
  EXPECT_THAT(reserve(0, 5000).message(), testing::StartsWith("arena slot 0: "));
}

TEST_F(ReservedSlots, TakeTheirMemoryOneAfterTheOther) {
  header_->reserving.store(3);
  std::atomic<bool> done{false};
  std::thread other([&] {
    EXPECT_TRUE(reserve(0, 1 << 30).ok());
    done.store(true);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(done.load());
  header_->reserving.store(0);
  other.join();
  EXPECT_EQ(header_->reserving.load(), 0U);
}

TEST_F(ReservedSlots, WaitForNobodyWhoIsDeadOrStands) {
  header_->reserving.store(3);
  const base::Status status = reserve(0, 1 << 30, std::chrono::milliseconds(30));
  EXPECT_EQ(status.code(), base::Code::kDeadlineExceeded);
  EXPECT_THAT(status.message(),
              HasSubstr("arena slot 0: timed out while the owner of slot 2 reserves"));
  dead_.store(2);
  EXPECT_TRUE(reserve(0, 1 << 30).ok());
  header_->reserving.store(2);  // the former owner of this slot died while reserving
  EXPECT_TRUE(reserve(1, 1 << 30).ok());
}

}  // namespace
}  // namespace regroup::shmem
