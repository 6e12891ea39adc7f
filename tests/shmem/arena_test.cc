// The arena: shape and refusals, Worlds, member slots, and the robust lock that reports a member's
// death.
#include "shmem/arena.h"
#include "base/clock.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <thread>

#include "proto/canonical.h"
#include "shmem/arena_tail.h"
#include "shmem/slot_owner.h"
#include "tests/shmem/small_arena.h"

namespace regroup::shmem {
namespace {

using std::chrono::seconds;

proto::World world_of(proto::Generation g) {
  proto::World world;
  world.incarnation = 1;
  world.generation = g;
  world.resume = proto::Position::of(g, 1);
  world.shards = 8;
  world.members = {{.id = 4, .slot_id = {0, 1}},
                   {.id = 7, .slot_id = {0, 2}, .needs_state = true, .from_step = 9}};
  world.plan.assign(8, proto::SlotId{0, 1});
  world.why = std::string(200 + g, 'w');
  return world;
}

base::Fd duplicate(const Arena& arena) { return base::Fd(::dup(arena.memfd())); }

TEST(Arena, CreateThenOpenShowsTheSameMemory) {
  auto agent = Arena::create(small_spec());
  ASSERT_TRUE(agent.ok()) << agent.status().to_string();
  auto member = Arena::open(duplicate(*agent));
  ASSERT_TRUE(member.ok()) << member.status().to_string();
  EXPECT_EQ(member->spec(), small_spec());
  agent->member_slot(2).step.store(77);
  EXPECT_EQ(member->member_slot(2).step.load(), 77U);
  agent->buffer(2, 4).back() = std::byte{9};
  EXPECT_EQ(member->buffer(2, 4).back(), std::byte{9});
  for (proto::SlotIndex slot = 0; slot < 3; ++slot)
    EXPECT_EQ(member->member_slot(slot).occupied.load(), 0U);
}

TEST(Arena, PartsDoNotOverlapAndAreAligned) {
  const ArenaSpec spec{.slots = 5,
                       .shards = 16,
                       .buffers_per_slot = 7,
                       .element_bytes = 8,
                       .elements = 333,
                       .snapshot_bytes = (kSnapshotChunk * 2) + 1};
  auto arena = Arena::create(spec);
  ASSERT_TRUE(arena.ok());
  std::vector<std::span<std::byte>> parts{arena->result(0), arena->result(1), arena->snapshot()};
  for (proto::SlotIndex slot = 0; slot < spec.slots; ++slot) {
    parts.emplace_back(reinterpret_cast<std::byte*>(&arena->member_slot(slot)), sizeof(MemberSlot));
    for (std::uint32_t k = 0; k < spec.buffers_per_slot; ++k)
      parts.push_back(arena->buffer(slot, k));
    parts.push_back(arena->bounce_buffer(slot));
  }
  const auto crcs = arena->snapshot_crcs();
  EXPECT_EQ(crcs.size(), 3U);
  parts.emplace_back(reinterpret_cast<std::byte*>(crcs.data()), crcs.size_bytes());
  std::sort(parts.begin(), parts.end(), [](auto a, auto b) { return a.data() < b.data(); });
  for (std::size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(parts[i].data()) % 64, 0U);
    if (i > 0) {
      EXPECT_LE(parts[i - 1].data() + parts[i - 1].size(), parts[i].data());
    }
  }
  EXPECT_EQ(arena->result(3).data(), arena->result(1).data());
}

TEST(Arena, OffsetsAreTheSameInEveryMapping) {
  auto agent = Arena::create(small_spec());
  ASSERT_TRUE(agent.ok());
  auto member = Arena::open(duplicate(*agent));
  ASSERT_TRUE(member.ok());
  const auto offset = agent->offset_of(agent->buffer(1, 2));
  ASSERT_TRUE(offset.has_value());
  EXPECT_EQ(member->at(*offset), member->buffer(1, 2).data());
  EXPECT_EQ(agent->offset_of(agent->snapshot().last(1)).has_value(), true);
  const std::byte* begin = agent->at(0);
  EXPECT_FALSE(agent->offset_of({begin - 1, 1}).has_value());
  EXPECT_FALSE(agent->offset_of({begin, arena_bytes(small_spec()) + 1}).has_value());
  EXPECT_FALSE(agent->offset_of({begin + arena_bytes(small_spec()), 1}).has_value());
}

TEST(Arena, RefusesShapesItCannotHave) {
  const auto refused = [](auto change) {
    ArenaSpec spec = small_spec();
    change(spec);
    return Arena::create(spec).code() == base::Code::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](ArenaSpec& s) { s.slots = 0; }));
  EXPECT_TRUE(refused([](ArenaSpec& s) { s.slots = proto::kMaxSlots + 1; }));
  EXPECT_TRUE(refused([](ArenaSpec& s) { s.shards = 0; }));
  EXPECT_TRUE(refused([](ArenaSpec& s) { s.shards = proto::kMaxShards + 1; }));
  EXPECT_TRUE(refused([](ArenaSpec& s) { s.buffers_per_slot = proto::kMaxBuffers + 1; }));
  EXPECT_TRUE(refused([](ArenaSpec& s) { s.element_bytes = 2; }));
  EXPECT_TRUE(refused([](ArenaSpec& s) { s.elements = ~0ULL; }));
  EXPECT_TRUE(refused([](ArenaSpec& s) { s.snapshot_bytes = ~0ULL; }));
}

TEST(Arena, OpenRefusesWhatIsNoArena) {
  EXPECT_EQ(Arena::open(base::Fd()).code(), base::Code::kInternal);  // EBADF
  base::Fd empty(::memfd_create("test", 0));
  EXPECT_EQ(Arena::open(std::move(empty)).code(), base::Code::kDataLoss);
  base::Fd zeros(::memfd_create("test", 0));
  ASSERT_EQ(::ftruncate(zeros.get(), 1 << 20), 0);
  EXPECT_EQ(Arena::open(std::move(zeros)).code(), base::Code::kDataLoss);
}

// A copy of a good arena's first bytes with `size` bytes and one byte changed.
base::Result<Arena> open_damaged(std::uint64_t size, off_t where, std::uint8_t value) {
  auto good = Arena::create(small_spec());
  base::Fd copy(::memfd_create("test", 0));
  std::vector<std::byte> head(4096);
  EXPECT_EQ(::pread(good->memfd(), head.data(), head.size(), 0), 4096);
  EXPECT_EQ(::ftruncate(copy.get(), static_cast<off_t>(size)), 0);
  EXPECT_EQ(::pwrite(copy.get(), head.data(), head.size(), 0), 4096);
  EXPECT_EQ(::pwrite(copy.get(), &value, 1, where), 1);
  return Arena::open(std::move(copy));
}

TEST(Arena, OpenRefusesAnotherMagicVersionSizeOrShape) {
  const std::uint64_t size = arena_bytes(small_spec());
  EXPECT_TRUE(open_damaged(size, 2000, 1).ok());  // beyond the header: harmless
  EXPECT_EQ(open_damaged(size, 0, 'X').code(), base::Code::kDataLoss);
  EXPECT_EQ(open_damaged(size, 8, 3).code(), base::Code::kDataLoss);
  EXPECT_EQ(open_damaged(size, 12, 1).code(),
            base::Code::kDataLoss);  // member slots of another build
  EXPECT_EQ(open_damaged(size + 4096, 2000, 0).code(), base::Code::kDataLoss);
  EXPECT_EQ(open_damaged(size - 4096, 2000, 0).code(), base::Code::kDataLoss);
  EXPECT_EQ(open_damaged(size, 16, 4).code(), base::Code::kDataLoss);  // slots
  EXPECT_EQ(open_damaged(size, 16, 255).code(),
            base::Code::kInvalidArgument);  // more than there can be
}

TEST(Arena, MembersCannotShortenTheFile) {
  auto arena = Arena::create(small_spec());
  ASSERT_TRUE(arena.ok());
  EXPECT_NE(::ftruncate(arena->memfd(), 4096), 0);
}

TEST(Arena, ATailIsSharedByAllWhoOpenTheFile) {
  auto arena = Arena::create(small_spec());
  ASSERT_TRUE(arena.ok() && tail_of(*arena).empty());
  ASSERT_TRUE(add_tail(*arena, 3 * 4096).ok());
  const auto open = [&] { return Arena::open(base::Fd(::dup(arena->memfd()))); };
  auto first = open(), second = open();
  ASSERT_TRUE(first.ok() && second.ok()) << first.status().to_string();
  const std::span<std::byte> tail = tail_of(*first);
  ASSERT_EQ(tail.size(), 3 * 4096U);
  tail.back() = std::byte{7};
  EXPECT_EQ(tail_of(*second).back(), std::byte{7});
  EXPECT_EQ(first->offset_of(tail), arena_bytes(small_spec()));
}

TEST(Arena, WorldsAreReadUntilFourNewerOnesExist) {
  auto arena = Arena::create(small_spec());
  ASSERT_TRUE(arena.ok());
  EXPECT_EQ(arena->newest_world(), 0U);
  EXPECT_EQ(arena->read_world(0).code(), base::Code::kUnavailable);
  EXPECT_EQ(arena->read_world(1).code(), base::Code::kUnavailable);
  for (proto::Generation g = 1; g <= 6; ++g) {
    ASSERT_TRUE(arena->publish_world(world_of(g)).ok());
    EXPECT_EQ(arena->newest_world(), g);
    for (proto::Generation old = g >= 4 ? g - 3 : 1; old <= g; ++old) {
      auto read = arena->read_world(old);
      ASSERT_TRUE(read.ok()) << read.status().to_string();
      EXPECT_EQ(*read, world_of(old));
    }
    if (g > 4) {
      EXPECT_EQ(arena->read_world(g - 4).code(), base::Code::kUnavailable);
    }
  }
  EXPECT_EQ(arena->read_world(7).code(), base::Code::kUnavailable);
}

TEST(Arena, TheLargestWorldFitsAndALongerOneIsRefused) {
  ArenaSpec spec = small_spec();
  spec.slots = proto::kMaxSlots;
  spec.shards = proto::kMaxShards;
  auto arena = Arena::create(spec);
  ASSERT_TRUE(arena.ok());
  proto::World world = world_of(1);
  world.shards = proto::kMaxShards;
  world.members.clear();
  for (proto::MemberId id = 0; id < proto::kMaxMembers; ++id) {
    const proto::SlotId slot_id{id / proto::kMaxSlots,
                                static_cast<proto::SlotIndex>(id % proto::kMaxSlots)};
    world.members.push_back(
        {.id = 7U + id, .slot_id = slot_id, .needs_state = id > 0, .from_step = 9});
  }
  world.plan.assign(proto::kMaxShards, proto::SlotId{1, 2});
  EXPECT_TRUE(arena->publish_world(world).ok());
  EXPECT_EQ(*arena->read_world(1), world);
  world.why.assign(1 << 20, 'w');
  const base::Status status = arena->publish_world(world);
  EXPECT_EQ(status.code(), base::Code::kResourceExhausted);
  EXPECT_THAT(status.message(),
              testing::ContainsRegex("World 1 takes [0-9]+ bytes, [0-9]+ are there"));
}

TEST(Arena, AWorldThatDoesNotFitIsRefusedOnReading) {
  auto arena = Arena::create(small_spec());
  ASSERT_TRUE(arena.ok());
  std::vector<proto::World> worlds(4, world_of(1));
  worlds[0].shards = 4, worlds[0].plan.resize(4);
  worlds[1].members[1].slot_id.slot = 3;
  worlds[2].plan[7].slot = 3;
  worlds[3].plan.pop_back();
  for (const proto::World& world : worlds) {
    ASSERT_TRUE(arena->publish_world(world).ok());
    EXPECT_EQ(arena->read_world(1).code(), base::Code::kDataLoss);
  }
}

TEST(Arena, AcceptsWorldsWithSlotsOfOtherNodes) {
  ArenaSpec spec = small_spec();
  spec.node = 4;
  auto arena = Arena::create(spec);
  ASSERT_TRUE(arena.ok());
  proto::World world = world_of(1);
  world.members[1].slot_id = {5, 100};
  ASSERT_TRUE(arena->publish_world(world).ok());
  EXPECT_EQ(*arena->read_world(1), world);
  world.members[1].slot_id = {4, 100};
  ASSERT_TRUE(arena->publish_world(world).ok());
  EXPECT_EQ(arena->read_world(1).code(), base::Code::kDataLoss);
}

TEST(Arena, ReadersBesideAPublisherSeeWholeWorldsOnly) {
  auto arena = Arena::create(small_spec());
  ASSERT_TRUE(arena.ok());
  constexpr proto::Generation kLast = 3000;
  std::atomic<unsigned> wrong{0}, good{0};
  std::thread reader([&] {
    for (proto::Generation newest = 0; newest < kLast;) {
      newest = arena->newest_world();
      auto world = arena->read_world(newest);
      if (world.ok()) (*world == world_of(newest) ? good : wrong)++;
      if (!world.ok() && world.code() != base::Code::kUnavailable) wrong++;
    }
  });
  for (proto::Generation g = 1; g <= kLast; ++g)
    EXPECT_TRUE(arena->publish_world(world_of(g)).ok());
  reader.join();
  EXPECT_EQ(wrong, 0U);
  EXPECT_GT(good, 0U);
}

TEST(Arena, AssignSlotBringsEveryWordBackToItsStart) {
  auto arena = Arena::create(small_spec());
  ASSERT_TRUE(arena.ok());
  ASSERT_TRUE(arena->publish_world(world_of(5)).ok());
  MemberSlot& member_slot = arena->member_slot(1);
  member_slot.state = 1, member_slot.revoked_up_to = 2, member_slot.left_generation = 3,
  member_slot.dead = 1, member_slot.finished = 1, member_slot.leave_request = kNow;
  member_slot.donated = 4, member_slot.using_snapshot = 5, member_slot.proved = 5,
  member_slot.seals[31] = 6, member_slot.seals[0] = 7, member_slot.step = 8, member_slot.loss = 0.5;
  for (Channel& channel : member_slot.channels) channel.instance = 9, channel.arrivals[1].word = 10;
  arena->assign_slot(1, 41);
  EXPECT_EQ(member_slot.occupied, 42U);
  EXPECT_EQ(load_state<RealPolicy>(member_slot.state), proto::StateWord());
  EXPECT_EQ(member_slot.left_generation,
            proto::kMaxGeneration);  // in no generation: no fence waits for it
  EXPECT_EQ(member_slot.revoked_up_to, 5U);
  for (auto* word : {&member_slot.dead, &member_slot.finished, &member_slot.leave_request,
                     &member_slot.donated, &member_slot.using_snapshot, &member_slot.proved})
    EXPECT_EQ(*word, 0U);
  for (const auto& seal : member_slot.seals) EXPECT_EQ(seal, 0U);
  for (const Channel& channel : member_slot.channels)
    EXPECT_EQ(channel.instance + channel.arrivals[1].word, 0U);
  EXPECT_EQ(member_slot.step, 0U);
  EXPECT_TRUE(std::isnan(member_slot.loss.load()));
}

TEST(Arena, TheFenceWaitsForTheLivingMembersOfEarlierGenerations) {
  auto arena = Arena::create(small_spec());
  ASSERT_TRUE(arena.ok());
  EXPECT_TRUE(all_left_before(*arena, 9));  // no members
  arena->assign_slot(0, 0);
  arena->assign_slot(2, 1);
  EXPECT_TRUE(all_left_before(*arena, 9));  // there, but in no generation yet
  for (const proto::SlotIndex slot : {0, 2})
    arena->member_slot(slot).left_generation = 0;  // both enter generation 1
  EXPECT_TRUE(all_left_before(*arena, 1));
  EXPECT_FALSE(all_left_before(*arena, 2));
  arena->member_slot(0).left_generation = 1;
  EXPECT_FALSE(all_left_before(*arena, 2));
  arena->member_slot(2).dead = 1;
  EXPECT_TRUE(all_left_before(*arena, 2));
  EXPECT_FALSE(all_left_before(*arena, 3));
}

TEST(Arena, RingAllRingsEveryOccupiedSlotButOne) {
  auto arena = Arena::create(small_spec());
  ASSERT_TRUE(arena.ok());
  arena->assign_slot(0, 0);
  arena->assign_slot(1, 1);
  ring_all(*arena);
  ring_all(*arena, 1);
  EXPECT_EQ(arena->member_slot(0).bell.count, 2U);
  EXPECT_EQ(arena->member_slot(1).bell.count, 1U);
  EXPECT_EQ(arena->member_slot(2).bell.count, 0U);
}

TEST(Arena, TheRobustLockTellsOfAKilledMember) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer does not see a lock that another process took";
#endif
  auto arena = Arena::create(small_spec());
  ASSERT_TRUE(arena.ok());
  arena->assign_slot(1, 0);
  MemberSlot& member_slot = arena->member_slot(1);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (!arena->claim_slot(1).ok()) ::_exit(1);
    member_slot.proved.store(1, std::memory_order_release);
    ring(arena->member_slot(0).bell);
    for (;;) ::pause();
  }
  const auto claimed = [&] { return member_slot.proved.load(std::memory_order_acquire) == 1; };
  EXPECT_TRUE(
      wait_until(arena->member_slot(0).bell, claimed, base::SystemClock().now() + seconds(30)));
  EXPECT_EQ(::pthread_mutex_trylock(&member_slot.alive), EBUSY);
  ::kill(child, SIGKILL);
  timespec deadline{};
  ::clock_gettime(CLOCK_MONOTONIC, &deadline);
  deadline.tv_sec += 30;
  EXPECT_EQ(::pthread_mutex_clocklock(&member_slot.alive, CLOCK_MONOTONIC, &deadline), EOWNERDEAD);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  ::pthread_mutex_consistent(&member_slot.alive);
  ::pthread_mutex_unlock(&member_slot.alive);
  arena->assign_slot(1, 5);  // the next owner can take it
  EXPECT_TRUE(arena->claim_slot(1).ok());
}

TEST(Arena, AnAbandonedSlotIsThatOfADeadMember) {
  auto arena = Arena::create(small_spec());
  ASSERT_TRUE(arena.ok());
  arena->assign_slot(1, 4);
  MemberSlot& slot = arena->member_slot(1);
  ASSERT_TRUE(arena->claim_slot(1).ok());
  std::thread([&] { abandon(slot); }).join();  // another thread's is not its to give up
  EXPECT_FALSE(is_abandoned(slot));
  abandon(slot);
  EXPECT_TRUE(is_abandoned(slot));
  abandon(slot);
  EXPECT_EQ(::pthread_mutex_trylock(&slot.alive), EOWNERDEAD);
  ::pthread_mutex_consistent(&slot.alive);
  ::pthread_mutex_unlock(&slot.alive);
  arena->assign_slot(1, 5);  // the next owner can take it
  EXPECT_TRUE(arena->claim_slot(1).ok());
}

TEST(Seal, PacksItsLimits) {
  for (const proto::Seal seal :
       {proto::Seal{}, proto::Seal{proto::kMaxStep, {proto::kMaxShards - 1, proto::kMaxShards}},
        proto::Seal{1, {0, 1}}}) {
    EXPECT_EQ(proto::Seal::unpack(seal.pack()), seal);
  }
}

}  // namespace
}  // namespace regroup::shmem
