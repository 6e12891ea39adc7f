// Groups whose ranks share no memory: some are on a host of their own, by the name that they give
// it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>
#include <utility>

#include "tests/collective/group/ranks.h"

namespace regroup::collective::group {
namespace {

using namespace std::chrono_literals;

// In processes of their own, since UCX ends one by an assertion.
using UcxGroup = GroupOfProcesses;

TEST_F(UcxGroup, ReducesAmongHosts) {
  const std::vector<std::string> hosts{"a", "b", "a"};
  with_forked_ranks(hosts, [](Group& group) {
    for (int turn = 0; turn < 3; ++turn) {
      std::vector<std::int64_t> values(1000, group.rank() + 1);
      ASSERT_TRUE(group.run(sum(values), in(30s)).ok());
      ASSERT_THAT(values, ::testing::Each(6));
    }
  });
}

TEST_F(UcxGroup, FinishesWhatWasStartedAndPassesMessages) {
  const std::vector<std::string> hosts{"a", "b"};
  with_forked_ranks(hosts, [](Group& group) {
    std::vector<std::int64_t> first{1}, second{2};
    std::int64_t got = 0;
    const std::int64_t sent = 10 + group.rank();
    const int other = 1 - group.rank();
    auto a = group.start(sum(first), in(30s));
    auto b = group.send(other, 5, std::as_bytes(std::span(&sent, 1)), in(30s));
    auto c = group.receive(kAnyRank, 5, std::as_writable_bytes(std::span(&got, 1)), in(30s));
    auto d = group.start(sum(second), in(30s));
    ASSERT_TRUE(a.ok() && b.ok() && c.ok() && d.ok());
    for (const auto& work : {*d, *c, *b, *a}) {
      ASSERT_TRUE(group.wait(work, in(30s)));
      EXPECT_TRUE(group.status_of(work).ok()) << group.status_of(work).to_string();
    }
    EXPECT_EQ(got, 10 + other);
    EXPECT_EQ(first[0], 2);
    EXPECT_EQ(second[0], 4);
  });
}

TEST_F(UcxGroup, PassesMessagesWithinAHostToo) {
  const std::vector<std::string> hosts{"a", "b", "a"};
  with_forked_ranks(hosts, [](Group& group) {
    const std::int64_t sent = group.rank();
    std::vector<std::int64_t> got(3);
    std::vector<Group::Handle> works;
    for (int other = 0; other < 3; ++other) {
      if (other == group.rank()) continue;
      auto& into = got[static_cast<std::size_t>(other)];
      auto taken = group.receive(other, 0, std::as_writable_bytes(std::span(&into, 1)), in(30s));
      auto out = group.send(other, 0, std::as_bytes(std::span(&sent, 1)), in(30s));
      ASSERT_TRUE(taken.ok() && out.ok());
      works.insert(works.end(), {*taken, *out});
    }
    for (const auto& work : works) {
      ASSERT_TRUE(group.wait(work, in(30s)));
      ASSERT_TRUE(group.status_of(work).ok()) << group.status_of(work).to_string();
    }
    for (int other = 0; other < 3; ++other)
      EXPECT_EQ(got[static_cast<std::size_t>(other)], other == group.rank() ? 0 : other);
  });
}

TEST_F(UcxGroup, SeveralOfOneProcessRunInThreadsOfTheirOwn) {
  const pid_t process = fork_rank(
      0, "",
      [](Group&) {
        const std::vector<std::string> hosts{"a", "b", "a"};
        with_ranks(hosts, [](Group& group) {
          for (int turn = 0; turn < 20; ++turn) {
            std::vector<std::int64_t> values(1000, group.rank() + 1);
            ASSERT_TRUE(group.run(sum(values), in(30s)).ok());
            ASSERT_THAT(values, ::testing::Each(6));
          }
        });
        return ::testing::Test::HasFailure() ? 1 : 0;
      },
      1);
  EXPECT_EQ(status_of(process), 0);
}

// Threads that form further groups would otherwise read the environment while one changes it.
TEST_F(UcxGroup, OnlyTheFirstOfAProcessChangesTheEnvironment) {
  const pid_t process = fork_rank(
      0, "",
      [](Group&) {
        const std::vector<std::string> hosts{"a", "b"};
        const auto no_work = [](Group&) {};
        with_ranks(hosts, no_work);
        char variable[] = "REGROUP_TEST_VARIABLE=1";
        char* mine[] = {variable, nullptr};
        environ = mine;  // setenv() would replace an array that it has not made
        with_ranks(hosts, no_work);
        return environ == mine && !::testing::Test::HasFailure() ? 0 : 1;
      },
      1);
  EXPECT_EQ(status_of(process), 0);
}

TEST_F(UcxGroup, ARankOfAnotherHostThatWasKilledIsNamed) {
  const pid_t victim = fork_rank(1, "b", [](Group& group) {
    std::vector<std::int64_t> values{1};
    const bool ok = group.run(sum(values), in(30s)).ok();
    ::kill(::getpid(), SIGKILL);
    return ok ? 0 : 1;
  });
  const pid_t survivor = fork_rank(0, "a", [](Group& group) {
    std::vector<std::int64_t> values{1};
    if (!group.run(sum(values), in(30s)).ok()) return 1;
    const base::Status status = group.run(sum(values), in(30s));
    std::fprintf(stderr, "%s\n", status.to_string().c_str());
    return status.message().find("rank 1") != std::string::npos ? 0 : 2;
  });
  EXPECT_EQ(status_of(survivor), 0);
  EXPECT_EQ(status_of(victim), 109);
}

// Whichever notices the death first, the operation or the message: the other one ends too.
TEST_F(UcxGroup, ARankOfAnotherHostIsKilledWhileAMessageIsAwaitedToo) {
  for (int turn = 0; turn < 5; ++turn) {
    const std::string folder = std::exchange(folder_, folder_ + "/" + std::to_string(turn));
    ASSERT_EQ(::mkdir(folder_.c_str(), 0700), 0);
    const pid_t victim = fork_rank(1, "b", [](Group& group) {
      std::vector<std::int64_t> values{1};
      const bool ok = group.run(sum(values), in(30s)).ok();
      ::kill(::getpid(), SIGKILL);
      return ok ? 0 : 1;
    });
    const pid_t survivor = fork_rank(0, "a", [](Group& group) {
      std::int64_t got = 0;
      auto message = group.receive(1, 7, std::as_writable_bytes(std::span(&got, 1)), in(30s));
      std::vector<std::int64_t> values{1};
      if (!message.ok() || !group.run(sum(values), in(30s)).ok()) return 1;
      const base::Status status = group.run(sum(values), in(30s));
      if (status.message().find("rank 1") == std::string::npos) return 2;
      return group.wait(*message, in(30s)) && !group.status_of(*message).ok() ? 0 : 3;
    });
    EXPECT_EQ(status_of(survivor), 0);
    EXPECT_EQ(status_of(victim), 109);
    folder_ = folder;
  }
}

}  // namespace
}  // namespace regroup::collective::group
