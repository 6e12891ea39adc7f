// Groups that meet in a store: what they compute, messages with tags, and ranks that end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <thread>
#include <vector>

#include "tests/collective/group/ranks.h"

namespace regroup::collective::group {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

TEST(Group, ReducesAmongRanksThatOnlyShareAStore) {
  with_ranks(3, [](Group& group) {
    std::vector<std::int64_t> values(1000);
    std::iota(values.begin(), values.end(), group.rank());
    ASSERT_TRUE(group.run(sum(values), in(30s)).ok());
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(values[i], static_cast<std::int64_t>(3 * i + 3));
  });
}

TEST(Group, ServesARankThatIsAlone) {
  with_ranks(1, [](Group& group) {
    std::vector<std::int64_t> values{7};
    ASSERT_TRUE(group.run(sum(values), in(30s)).ok());
    EXPECT_EQ(values[0], 7);
  });
}

TEST(Group, RunsOperationsThatWereStartedBesideABlockingOne) {
  with_ranks(2, [](Group& group) {
    std::vector<std::int64_t> first{1}, second{2}, third{3};
    auto a = group.start(sum(first), in(30s));
    auto b = group.start(sum(second), in(30s));
    ASSERT_TRUE(a.ok() && b.ok());
    ASSERT_TRUE(group.run(sum(third), in(30s)).ok());
    EXPECT_TRUE(group.wait(*b, in(30s)));
    EXPECT_TRUE(group.wait(*a, in(30s)));
    EXPECT_TRUE(group.status_of(*a).ok() && group.status_of(*b).ok());
    EXPECT_EQ(first[0], 2);
    EXPECT_EQ(second[0], 4);
    EXPECT_EQ(third[0], 6);
  });
}

TEST(Group, LetsTwoThreadsWaitAtOnce) {
  with_ranks(2, [](Group& group) {
    std::vector<std::int64_t> values{1};
    std::int64_t got = 0, sent = 5;
    const int other = 1 - group.rank();
    // A thread of rank 0 waits for a message that rank 1 sends only after the reduction.
    std::thread receiver;
    if (group.rank() == 0) {
      receiver = std::thread([&] {
        auto work = group.receive(other, 1, std::as_writable_bytes(std::span(&got, 1)), in(30s));
        ASSERT_TRUE(work.ok());
        EXPECT_TRUE(group.wait(*work, in(30s)));
      });
      std::this_thread::sleep_for(20ms);
    }
    ASSERT_TRUE(group.run(sum(values), in(30s)).ok());
    if (group.rank() == 1) {
      auto work = group.send(other, 1, std::as_bytes(std::span(&sent, 1)), in(30s));
      ASSERT_TRUE(work.ok());
      EXPECT_TRUE(group.wait(*work, in(30s)));
    } else {
      receiver.join();
      EXPECT_EQ(got, 5);
    }
  });
}

TEST(Group, MatchesMessagesByTagAndTellsTheSource) {
  with_ranks(3, [](Group& group) {
    if (group.rank() != 0) {
      std::vector<std::int64_t> values{10 * group.rank(), 10 * group.rank() + 1};
      std::vector<Group::Handle> works;
      for (std::uint32_t tag : {0U, 1U}) {
        auto work = group.send(0, tag, std::as_bytes(std::span(&values[tag], 1)), in(30s));
        ASSERT_TRUE(work.ok());
        works.push_back(*work);
      }
      for (const auto& work : works) ASSERT_TRUE(group.wait(work, in(30s)));
      return;
    }
    const auto receive = [&](int from, std::uint32_t tag) {
      std::int64_t value = 0;
      auto work = group.receive(from, tag, std::as_writable_bytes(std::span(&value, 1)), in(30s));
      EXPECT_TRUE(work.ok());
      EXPECT_TRUE(group.wait(*work, in(30s)));
      EXPECT_TRUE(group.status_of(*work).ok());
      return std::pair(group.source_of(*work), value);
    };
    EXPECT_EQ(receive(2, 1), std::pair(2, std::int64_t{21}));  // sent after the one with tag 0
    const auto [source, value] = receive(kAnyRank, 0);
    EXPECT_EQ(value, 10 * source);
    const auto [last, other] = receive(kAnyRank, 0);
    EXPECT_EQ(source + last, 3);
    EXPECT_EQ(other, 10 * last);
    EXPECT_EQ(receive(1, 1), std::pair(1, std::int64_t{11}));
  });
}

TEST(Group, RefusesAMessageOfAnotherSizeAndGoesOn) {
  with_ranks(2, [](Group& group) {
    std::vector<std::byte> data(16);
    if (group.rank() == 0) {
      for (const std::size_t bytes : {16, 8, 0}) {
        auto work = group.send(1, 0, std::span(data).first(bytes), in(30s));
        ASSERT_TRUE(work.ok());
        ASSERT_TRUE(group.wait(*work, in(30s)));
      }
      return;
    }
    auto wrong = group.receive(0, 0, std::span(data).first(8), in(30s));
    ASSERT_TRUE(wrong.ok() && group.wait(*wrong, in(30s)));
    EXPECT_THAT(group.status_of(*wrong).message(),
                HasSubstr("sent 16 bytes with tag 0, expected 8"));
    auto right = group.receive(0, 0, std::span(data).first(8), in(30s));
    ASSERT_TRUE(right.ok() && group.wait(*right, in(30s)));
    EXPECT_TRUE(group.status_of(*right).ok());
    auto empty = group.receive(0, 0, {}, in(30s));
    ASSERT_TRUE(empty.ok() && group.wait(*empty, in(30s)));
    EXPECT_TRUE(group.status_of(*empty).ok());
  });
}

TEST(Group, NamesTheMissingRanks) {
  MemoryStore store;
  auto group = Group::form(store, 1, 4, 50ms);
  ASSERT_FALSE(group.ok());
  EXPECT_EQ(group.code(), base::Code::kDeadlineExceeded);
  EXPECT_THAT(group.status().message(), HasSubstr("ranks 0, 2, 3 have not come"));
}

TEST(Group, AnAbortEndsAnOperationThatWaits) {
  with_ranks(2, [](Group& group) {
    if (group.rank() == 1) return;  // takes no part, and leaves the group in its time
    std::thread other([&] {
      std::this_thread::sleep_for(20ms);
      group.abort("by the test");
    });
    std::vector<std::int64_t> values{1};
    const base::Status status = group.run(sum(values), in(30s));
    other.join();
    EXPECT_EQ(status.message(), "the group was aborted: by the test");
    EXPECT_EQ(group.run(sum(values), in(30s)).message(), status.message());
  });
}

TEST(GroupHeap, GivesMemoryThatTheRanksShare) {
  constexpr std::size_t kCount = 4 << 20;  // 32 MiB
  with_ranks(2, [](Group& group) {
    ASSERT_TRUE(group.can_allocate());
    const std::shared_ptr<std::byte> memory = group.allocate(kCount * sizeof(std::int64_t));
    ASSERT_NE(memory, nullptr);
    const std::span values(reinterpret_cast<std::int64_t*>(memory.get()), kCount);
    for (int turn = 0; turn < 2; ++turn) {
      std::iota(values.begin(), values.end(), group.rank());
      const auto bytes = std::as_writable_bytes(values);
      ASSERT_TRUE(group.run(Operation::allreduce(bytes, bytes, Dtype::kInt64), in(30s)).ok());
      for (std::size_t i = 0; i < kCount; ++i)
        ASSERT_EQ(values[i], static_cast<std::int64_t>(2 * i + 1));
    }
  });
}

TEST(GroupHeap, TakesBackWhatIsNotUsedAndHasNoOverlaps) {
  with_ranks(1, [](Group& group) {
    std::shared_ptr<std::byte> first = group.allocate(1), second = group.allocate(10'000);
    const std::shared_ptr<std::byte> third = group.allocate(0);
    std::byte* const begin = first.get();
    EXPECT_EQ(second.get(), begin + 4096);
    EXPECT_EQ(third.get(), begin + 4 * 4096);
    second.reset();
    first.reset();  // both are one range now
    EXPECT_EQ(group.allocate(4 * 4096).get(), begin);
    EXPECT_EQ(group.allocate(4 * 4096 + 1).get(), third.get() + 4096);
    EXPECT_EQ(group.allocate(1ULL << 50), nullptr);
  });
}

TEST(GroupHeap, UnderALimitOnFilesThereIsAGroupWithoutSharedMemory) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit limited{1UL << 30, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limited), 0);
  with_ranks(2, [](Group& group) {
    EXPECT_FALSE(group.can_allocate());
    EXPECT_EQ(group.allocate(4096), nullptr);
    std::vector<std::int64_t> values{1};
    ASSERT_TRUE(group.run(sum(values), in(30s)).ok());
    EXPECT_EQ(values[0], 2);
  });
  ::setrlimit(RLIMIT_FSIZE, &before);
}

TEST(GroupHeap, MemoryOutlivesTheGroup) {
  std::shared_ptr<std::byte> memory;
  with_ranks(1, [&](Group& group) { memory = group.allocate(4096); });
  std::memset(memory.get(), 1, 4096);
  EXPECT_EQ(memory.get()[4095], std::byte{1});
}

TEST_F(GroupOfProcesses, AnOperationNamesTheRankThatWasKilled) {
  const pid_t victim = fork_rank(1, "", [](Group&) { return ::pause(); });
  const pid_t survivor = fork_rank(0, "", [victim](Group& group) {
    ::kill(victim, SIGKILL);
    std::vector<std::int64_t> values{1};
    const base::Status status = group.run(sum(values), in(60s));
    const std::string expected = "rank 1 (pid " + std::to_string(victim) + ") ended";
    return status.code() == base::Code::kPeerLost && status.message() == expected ? 0 : 1;
  });
  EXPECT_EQ(status_of(survivor), 0);
  EXPECT_EQ(status_of(victim), 109);
}

TEST_F(GroupOfProcesses, ARankThatHasLeftFailsOnlyWhatWaitsForIt) {
  const pid_t first = fork_rank(1, "", [](Group& group) {
    std::int64_t value = 3;
    auto work = group.send(0, 0, std::as_bytes(std::span(&value, 1)), in(30s));
    return work.ok() && group.wait(*work, in(30s)) ? 0 : 1;
  });
  const pid_t second = fork_rank(0, "", [](Group& group) {
    std::int64_t value = 0;
    auto work = group.receive(1, 0, std::as_writable_bytes(std::span(&value, 1)), in(30s));
    if (!work.ok() || !group.wait(*work, in(30s)) || value != 3) return 1;
    auto never = group.receive(1, 0, std::as_writable_bytes(std::span(&value, 1)), in(30s));
    if (!never.ok() || !group.wait(*never, in(30s))) return 2;
    return group.status_of(*never).message() == "rank 1 has left the group and ended" ? 0 : 3;
  });
  EXPECT_EQ(status_of(first), 0);
  EXPECT_EQ(status_of(second), 0);
}

}  // namespace
}  // namespace regroup::collective::group
