// Clients in mode sync: whatever number of clients and shards there are and whatever is killed, the
// tables have the bits of a run that nobody disturbed.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <random>

#include "collective/ps/consistency.h"
#include "tests/collective/ps/training.h"

namespace regroup::collective::ps::testing::sync {
namespace {

using base::Code;
using namespace training;

TEST(PsConsistency, OfModeSyncIsChecked) {
  const auto text = [](const Consistency& one) { return check(one).message(); };
  EXPECT_EQ(text(sync_of(8)), "");
  EXPECT_EQ(text(sync_of(0)), "leaves=0: expected 1 to 1024 leaves of a step");
  EXPECT_EQ(text(sync_of(1025)), "leaves=1025: expected 1 to 1024 leaves of a step");
  EXPECT_EQ(text({.mode = Mode::kSync}),
            "mode=\"sync\": expected a number of leaves, for example leaves=8");
  EXPECT_EQ(text({.mode = Mode::kSync, .staleness = 1, .leaves = 8}),
            "staleness=1: staleness is for mode=\"ssp\", got mode=\"sync\"");
  EXPECT_EQ(text({.leaves = 8}), "leaves=8: leaves is for mode=\"sync\", got mode=\"async\"");
  EXPECT_EQ(check_same(sync_of(8), sync_of(4), "worker 1").message(),
            "leaves 8 here, 4 at worker 1; expected the same in all processes of the job");
  EXPECT_EQ(from_word(to_word(sync_of(1024))), sync_of(1024));
}

class PsSync : public ::testing::Test {
 protected:
  PsSync() : PsSync(Served::small(2)) {}
  explicit PsSync(ServerMemorySpec spec) : served_(spec) {
    shared_ = static_cast<std::atomic<std::uint64_t>*>(
        ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  }
  ~PsSync() override { ::munmap(static_cast<void*>(shared_), 4096); }
  PsSync(const PsSync&) = delete;
  PsSync& operator=(const PsSync&) = delete;

  static base::Result<std::unique_ptr<Client>> attach(const Served& served, std::uint64_t number,
                                                      std::int64_t leaves = kLeaves,
                                                      std::chrono::nanoseconds deadline = kLong) {
    return Client::attach({.memory = to_text(served.memory.get()),
                           .client = number,
                           .deadline = deadline,
                           .consistency = sync_of(leaves),
                           .name = "worker " + std::to_string(number)});
  }
  static std::unique_ptr<Client> client(const Served& served, std::uint64_t number,
                                        std::int64_t leaves = kLeaves) {
    auto made = attach(served, number, leaves);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return made.ok() ? std::move(*made) : nullptr;
  }
  // Trains until `steps` are complete. Returns 0.
  int work(const Served& served, std::uint64_t number, std::uint64_t steps) {
    const auto made = attach(served, number);
    if (!made.ok()) return fail(1, made.status());
    if (const base::Status status = train_until(**made, steps, *shared_); !status.ok())
      return fail(2, status);
    return ::testing::Test::HasFailure() ? 4 : 0;
  }
  Child worker(const Served& served, std::uint64_t number, std::uint64_t steps) {
    return Child([this, &served, number, steps] { return work(served, number, steps); });
  }
  // Waits for so many leaves, or the end of step `steps`.
  void await_more_leaves(const Served& served, std::uint64_t count, std::uint64_t steps) const {
    const std::uint64_t enough = *shared_ + count;
    const MappedShard shard = served.map(0);
    const StepWords& words = shard.lanes.header().steps;
    for (const base::TimePoint end = in(kLong); *shared_ < enough && words.applied < steps;
         ::usleep(200))
      ASSERT_LT(in(std::chrono::seconds(0)), end) << "no more leaves in step " << words.applied;
  }
  // The tables after so many steps, and that each leaf counted once.
  static std::uint32_t result(const Served& served, std::uint64_t steps) {
    const auto last = client(served, 1000);
    return checked_digest(*last, steps);
  }
  // Of a run that nobody disturbs: one client, one shard.
  std::uint32_t undisturbed(std::uint64_t steps) {
    const Served served(Served::small(1));
    const Child server = served.server();
    EXPECT_EQ(worker(served, 1, steps).end(), 0);
    return result(served, steps);
  }

  const Served served_;
  std::atomic<std::uint64_t>* shared_;  // leaves that were computed

 private:
  static int fail(int exit, const base::Status& why) {
    ::dprintf(2, "%s\n", why.to_string().c_str());
    return exit;
  }
};

TEST_F(PsSync, BitsDoNotDependOnTheNumberOfClientsAndShards) {
  constexpr std::uint64_t kSteps = 12;
  const std::uint32_t expected = undisturbed(kSteps);
  for (const auto& [clients, shards] : {std::pair(2, 1), std::pair(3, 2), std::pair(1, 4)}) {
    const Served served(Served::small(static_cast<std::uint32_t>(shards)));
    const Child server = served.server();
    std::vector<Child> workers;
    for (int i = 0; i < clients; ++i)
      workers.push_back(worker(served, static_cast<std::uint64_t>(i), kSteps));
    for (Child& one : workers) EXPECT_EQ(one.end(), 0);
    EXPECT_EQ(result(served, kSteps), expected) << clients << " clients, " << shards << " shards";
  }
}

// Clients of a step do not see each other's pushes, nor their own, before it is complete.
TEST_F(PsSync, APullHasExactlyTheStepsBeforeItsOwn) {
  const Child server = served_.server();
  const auto one = client(served_, 1, 2), two = client(served_, 2, 2);
  const Table counted = open(*one, counts());
  ASSERT_EQ(open(*two, counts()).number, counted.number);
  const std::vector<std::int64_t> id{5}, add{1};
  for (std::int64_t step = 0; step < 20; ++step) {
    const auto first = *one->next_leaf(), second = *two->next_leaf();
    ASSERT_EQ(first, (Leaf{static_cast<std::uint64_t>(step), 0}));
    ASSERT_EQ(second, (Leaf{static_cast<std::uint64_t>(step), 1}));
    EXPECT_EQ(pull<std::int64_t>(*one, counted, id, 1)[0], 2 * step);
    ASSERT_TRUE(one->push(counted, id, bytes_of(add)).ok());
    ASSERT_TRUE(two->push(counted, id, bytes_of(add)).ok());
    ASSERT_TRUE(one->flush().ok());
    EXPECT_EQ(pull<std::int64_t>(*one, counted, id, 1)[0], 2 * step) << "own pushes are seen";
    EXPECT_EQ(pull<std::int64_t>(*two, counted, id, 1)[0], 2 * step);
    // One that waits for long computes the other's leaf, too.
    const auto end = [&](Client& client) {
      while (*client.next_leaf()) ASSERT_TRUE(client.push(counted, id, bytes_of(add)).ok());
    };
    std::thread other([&] { end(*two); });
    end(*one);
    other.join();
    EXPECT_EQ(one->clock(), static_cast<std::uint64_t>(step + 1));
    EXPECT_EQ(two->clock(), static_cast<std::uint64_t>(step + 1));
  }
}

TEST_F(PsSync, WhatIsNotForItIsRefused) {
  const Child server = served_.server();
  const auto one = client(served_, 1, 1);
  const Table counted = open(*one, counts());
  const Table assigned =
      open(*one, {.name = "assigned", .rows = 2, .optimizer = {.kind = OptimizerKind::kAssign}});
  const Table trained = open(*one, top());
  const std::vector<std::int64_t> id{5}, add{1};
  const std::vector<float> two{1, 2}, gradients(1000);
  EXPECT_EQ(one->push(counted, id, bytes_of(add)).status().message(),
            "push to table counts: no leaf is begun; in mode sync pushes belong to the leaf that "
            "next_leaf() has returned");
  EXPECT_EQ(one->advance().code(), Code::kInvalidArgument);
  ASSERT_TRUE(one->next_leaf()->has_value());
  EXPECT_EQ(one->push(assigned, bytes_of(two)).status().message(),
            "push to table assigned: the gradients of a step's leaves are added up, and assign "
            "stores one; expected another optimizer in mode sync");
  ASSERT_TRUE(one->push(trained, bytes_of(gradients), {.lr = 0.1}).ok());
  ASSERT_TRUE(one->push(trained, bytes_of(gradients), {.lr = 0.2}).ok());
  const auto refused = one->next_leaf();
  EXPECT_EQ(refused.status().message(),
            "push: expected lr 0.1 as another leaf of the step has it, got 0.2");
  EXPECT_EQ(*one->next_leaf(), (Leaf{0, 0})) << "the leaf has counted";
  EXPECT_EQ(attach(served_, 2, 3).status().message(),
            "leaves 3 here, 1 at worker 1; expected the same in all processes of the job");
  EXPECT_EQ(served_.attach(2).status().message(),
            "mode \"async\" here, \"sync\" at worker 1; expected the same in all processes of the "
            "job");
}

TEST_F(PsSync, NextLeafIsForModeSync) {
  const auto one = served_.client(1);
  EXPECT_EQ(one->next_leaf().status().message(),
            "next_leaf: it is for mode=\"sync\", got mode=\"async\"");
}

// ---- deaths

TEST_F(PsSync, BitsAreThoseOfAnUndisturbedRunWhateverIsKilled) {
  const int schedules = std::getenv("REGROUP_TEST_FULL") != nullptr ? 100 : 4;
  constexpr std::uint64_t kSteps = 40;
  const std::uint32_t expected = undisturbed(kSteps);
  for (int schedule = 0; schedule < schedules; ++schedule) {
    std::mt19937 random(static_cast<unsigned>(schedule));
    const Served served(Served::small(1 + random() % 3));
    Child server = served.server();
    std::uint64_t next = 1;
    std::vector<Child> workers;
    for (int i = 0; i < 3; ++i) workers.push_back(worker(served, next++, kSteps));
    for (int kill = 0; kill < 8; ++kill) {
      await_more_leaves(served, random() % 12, kSteps);
      ::usleep(random() % 2000);
      if (random() % 2 == 0) {
        server.end(SIGKILL);
        server = served.server();
      } else {
        Child& victim = workers[random() % workers.size()];
        victim.end(SIGKILL);
        victim = worker(served, next++, kSteps);
      }
    }
    for (Child& one : workers) EXPECT_EQ(one.end(), 0);
    EXPECT_EQ(result(served, kSteps), expected) << "schedule " << schedule;
    EXPECT_EQ(server.end(SIGTERM), 0);
  }
}

TEST_F(PsSync, AllClientsMayBeKilled) {
  constexpr std::uint64_t kSteps = 20;
  const std::uint32_t expected = undisturbed(kSteps);
  const Child server = served_.server();
  for (std::uint64_t round = 0; round < 3; ++round) {
    Child one = worker(served_, 2 * round, kSteps), two = worker(served_, 2 * round + 1, kSteps);
    await_more_leaves(served_, 10, kSteps);
    one.end(SIGKILL);
    two.end(SIGKILL);
  }
  EXPECT_EQ(worker(served_, 9, kSteps).end(), 0);
  EXPECT_EQ(result(served_, kSteps), expected);
}

TEST_F(PsSync, AStepWhoseClientsHaveAllEndedMayHaveAnotherNumberOfLeaves) {
  const Child server = served_.server();
  const std::vector<std::int64_t> id{5}, add{1};
  auto one = client(served_, 1, 2);
  Table counted = open(*one, counts());
  ASSERT_EQ(*one->next_leaf(), (Leaf{0, 0}));
  ASSERT_TRUE(one->push(counted, id, bytes_of(add)).ok());
  ASSERT_EQ(*one->next_leaf(), (Leaf{0, 1}));
  one.reset();
  for (const std::size_t number : {0, 1}) {
    const MappedShard shard = served_.map(number);
    for (const base::TimePoint end = in(kLong); shard.lanes.lane(0).client != 0; ::usleep(200))
      ASSERT_LT(in(std::chrono::seconds(0)), end) << "the lane stays taken";
  }
  one = client(served_, 2, 3);
  counted = open(*one, counts());
  for (std::uint32_t number = 0; number < 3; ++number) {
    ASSERT_EQ(*one->next_leaf(), (Leaf{0, number}));
    ASSERT_TRUE(one->push(counted, id, bytes_of(add)).ok());
  }
  EXPECT_EQ(*one->next_leaf(), std::nullopt);
  EXPECT_EQ(pull<std::int64_t>(*one, counted, id, 1)[0], 3);
}

// Others need not wait until they would help a slow client.
TEST_F(PsSync, AClaimEndsWithItsClient) {
  const Child server = served_.server();
  const MappedShard shard = served_.map(0);
  const std::atomic<std::uint64_t>& claim = shard.lanes.header().steps.claims[0];
  auto one = client(served_, 1);
  ASSERT_EQ(*one->next_leaf(), (Leaf{0, 0}));
  EXPECT_NE(claim.load(), 0U);
  one.reset();
  for (const base::TimePoint end = in(kLong); claim != 0; ::usleep(200))
    ASSERT_LT(in(std::chrono::seconds(0)), end) << "the claim stays";
  EXPECT_EQ(*client(served_, 2)->next_leaf(), (Leaf{0, 0}));
}

// The others compute what a stopped client has claimed, and its own late leaf counts for nothing.
TEST_F(PsSync, AStoppedClientHoldsUpNobody) {
  constexpr std::uint64_t kSteps = 20;
  const std::uint32_t expected = undisturbed(kSteps);
  const Child server = served_.server();
  Child stopped = worker(served_, 1, kSteps), other = worker(served_, 2, kSteps);
  await_more_leaves(served_, 20, kSteps);
  stopped.stop();
  EXPECT_EQ(other.end(), 0);
  EXPECT_EQ(result(served_, kSteps), expected);
  stopped.signal(SIGCONT);
  EXPECT_EQ(stopped.end(), 0);
  EXPECT_EQ(result(served_, kSteps), expected);
}

// A sum that is in one shard's log only is not applied, by no successor, before all shards have
// theirs; then it is, by a successor, too.
TEST_F(PsSync, AStepIsAppliedInAllShardsOrInNone) {
  const MappedShard first = served_.map(0), second = served_.map(1);
  const auto words = [](const MappedShard& shard) -> StepWords& {
    return shard.lanes.header().steps;
  };
  served_.assign({0, 1});
  Child server = served_.server(0), other = served_.server(1);
  const auto one = client(served_, 1, 1);
  const Tables tables = open_all(*one);
  const std::vector<float> before = pull<float>(*one, tables.top);
  const auto before_counts = pull<std::int64_t>(*one, tables.counts, all_ids(100), 1);
  const auto leaf = *one->next_leaf();
  ASSERT_TRUE(train(*one, tables, *leaf).ok());
  ASSERT_TRUE(one->flush().ok());
  server.stop();  // it takes the end of the leaf later
  std::thread ending([&] { EXPECT_EQ(*one->next_leaf(), std::nullopt); });
  for (const base::TimePoint end = in(kLong); words(second).logged != 1; ::usleep(200))
    ASSERT_LT(in(std::chrono::seconds(0)), end);
  other.end(SIGKILL);
  other = served_.server(1);
  served_.await_server(1, other.pid());
  EXPECT_EQ(words(second).applied.load(), 0U);
  EXPECT_EQ(pull<float>(*one, tables.top), before);
  EXPECT_EQ(pull<std::int64_t>(*one, tables.counts, all_ids(100), 1), before_counts);
  EXPECT_EQ(words(first).logged.load(), 0U);
  other.end(SIGKILL);
  server.signal(SIGCONT);
  for (const base::TimePoint end = in(kLong); words(first).applied != 1; ::usleep(200))
    ASSERT_LT(in(std::chrono::seconds(0)), end);
  EXPECT_EQ(words(second).applied.load(), 0U);
  other = served_.server(1);
  ending.join();
  EXPECT_EQ(one->clock(), 1U);
  EXPECT_NE(pull<float>(*one, tables.top), before);
  const auto after = pull<std::int64_t>(*one, tables.counts, all_ids(100), 1);
  EXPECT_EQ(after[99], before_counts[99] + 1);
}

// A checkpoint's writer holds the steps: then all tables are of one step, also where the server
// that should have applied it is dead.
TEST_F(PsSync, StepsOnHoldAreAppliedInAllShardsOrInNone) {
  const auto all = [&] {
    std::vector<MappedShard> out;
    for (std::size_t i = 0; i < 2; ++i) out.push_back(served_.map(i));
    return out;
  };
  const std::vector<MappedShard> shards = all();
  const auto words = [&](std::size_t shard) -> StepWords& {
    return shards[shard].lanes.header().steps;
  };
  Child server = served_.server();
  const auto one = client(served_, 1, 1);
  const Tables tables = open_all(*one);
  const auto end_step = [&] {
    while (const auto leaf = *one->next_leaf()) ASSERT_TRUE(train(*one, tables, *leaf).ok());
  };
  end_step();
  std::thread ending;
  {
    const auto hold = StepHold::take(shards, in(kLong));
    ASSERT_TRUE(hold.ok()) << hold.status().to_string();
    EXPECT_EQ(hold->step(), 1U);
    ending = std::thread(end_step);
    for (const base::TimePoint end = in(kLong); words(1).logged != 2; ::usleep(200))
      ASSERT_LT(in(std::chrono::seconds(0)), end);
    ::usleep(20'000);
    EXPECT_EQ(words(0).applied.load(), 1U);
    EXPECT_EQ(words(1).applied.load(), 1U);
  }
  ending.join();
  EXPECT_EQ(one->clock(), 2U);
  // A server that died between the log and the application.
  server.end(SIGKILL);
  {
    const auto attached = ShardServer::attach(shards, 0, in(kLong));
    ASSERT_TRUE(attached.ok());
    Range* counted = nullptr;
    (*attached)->store().each([&](Range& range) {
      if (range.spec().name == "counts") counted = &range;
    });
    ASSERT_NE(counted, nullptr);
    const std::vector<std::uint64_t> position{counted->header().positions.first};
    const std::vector<std::int64_t> add{70};
    ASSERT_TRUE(counted
                    ->append({.client = kStepClient,
                              .number = 3,
                              .epoch = counted->epoch(),
                              .positions = position,
                              .gradients = bytes_of(add)})
                    .ok());
    words(1).logged = 3;
    words(0).logged = 3;
    EXPECT_EQ(counted->applied(), 2U);
  }
  const auto hold = StepHold::take(shards, in(kLong));
  ASSERT_TRUE(hold.ok()) << hold.status().to_string();
  EXPECT_EQ(hold->step(), 3U);
  for (const std::size_t shard : {0, 1}) EXPECT_EQ(words(shard).applied.load(), 3U);
}

// Servers have a part of a push that has failed in the client. The leaf does not count, and the
// client begins it again: else what it pushes then would count twice.
TEST_F(PsSync, ALeafWhosePushHasFailedIsBegunAgain) {
  const Served served(Served::small(1));
  const Child server = served.server();
  const auto attached = attach(served, 1, 1, std::chrono::seconds(2));
  ASSERT_TRUE(attached.ok()) << attached.status().to_string();
  const auto& one = *attached;
  const Table many = open(
      *one, {.name = "many", .kind = TableKind::kDirect, .rows = 5000, .dtype = Dtype::kInt64});
  const std::vector<std::int64_t> ids = all_ids(5000), ones(5000, 1);  // more than a lane has
  ASSERT_EQ(*one->next_leaf(), (Leaf{0, 0}));
  server.stop();
  EXPECT_EQ(one->push(many, ids, bytes_of(ones)).code(), Code::kDeadlineExceeded);
  const MappedShard shard = served.map(0);
  const Lane& lane = shard.lanes.lane(0);
  EXPECT_NE(lane.written.load(), lane.read.load());
  server.signal(SIGCONT);
  for (const base::TimePoint end = in(kLong); lane.written != lane.read; ::usleep(200))
    ASSERT_LT(in(std::chrono::seconds(0)), end) << "the lane is not read";
  // As a caller who keeps the gradients of a push that has failed.
  ASSERT_TRUE(one->push(many, ids, bytes_of(ones)).ok());
  EXPECT_EQ(one->next_leaf().code(), Code::kDeadlineExceeded);
  ASSERT_EQ(*one->next_leaf(), (Leaf{0, 0}));
  ASSERT_TRUE(one->push(many, ids, bytes_of(ones)).ok());
  EXPECT_EQ(*one->next_leaf(), std::nullopt);
  EXPECT_EQ(pull<std::int64_t>(*one, many, ids, 1), ones);
}

// A push that another thread has not sent whole is of no later leaf, and its leaf does not count.
TEST_F(PsSync, APushWhoseLeafEndsMeanwhileIsRefused) {
  const Served served(Served::small(1));
  const Child server = served.server();
  const auto one = client(served, 1, 1);
  const Table many = open(
      *one, {.name = "many", .kind = TableKind::kDirect, .rows = 5000, .dtype = Dtype::kInt64});
  const std::vector<std::int64_t> ids = all_ids(5000), ones(5000, 1);  // more than a lane has
  ASSERT_EQ(*one->next_leaf(), (Leaf{0, 0}));
  server.stop();
  base::Status pushed;
  std::thread other([&] { pushed = one->push(many, ids, bytes_of(ones)).status(); });
  const MappedShard shard = served.map(0);
  const Lane& lane = shard.lanes.lane(0);
  // It waits for room then.
  for (const base::TimePoint end = in(kLong); lane.written - lane.read < 48 << 10; ::usleep(200))
    ASSERT_LT(in(std::chrono::seconds(0)), end) << "the lane is not full";
  EXPECT_EQ(one->next_leaf().status().message(),
            "next_leaf: another thread still pushes to table many; expected next_leaf() after the "
            "leaf's pushes");
  server.signal(SIGCONT);
  other.join();
  EXPECT_EQ(pushed.message(),
            "push to table many: next_leaf() has ended its leaf while it was sent; expected "
            "next_leaf() after the leaf's pushes");
  ASSERT_EQ(*one->next_leaf(), (Leaf{0, 0}));
  ASSERT_TRUE(one->push(many, ids, bytes_of(ones)).ok());
  EXPECT_EQ(*one->next_leaf(), std::nullopt);
  EXPECT_EQ(pull<std::int64_t>(*one, many, ids, 1), ones);
}

// A step that does not fit into the log ends with an error, not with a wait for ever.
TEST_F(PsSync, AStepThatDoesNotFitIntoTheLogIsAnError) {
  const Child server = served_.server();
  const auto one = client(served_, 1, 1);
  // Each table fits into the log's 256 KiB, and a lane; all of them do not.
  std::vector<Table> tables;
  for (int i = 0; i < 20; ++i)
    tables.push_back(open(*one, {.name = "t" + std::to_string(i), .rows = 10'000}));
  const std::vector<float> gradients(10'000);
  ASSERT_TRUE(one->next_leaf()->has_value());
  for (const Table table : tables) ASSERT_TRUE(one->push(table, bytes_of(gradients)).ok());
  const auto ended = one->next_leaf();
  EXPECT_EQ(ended.code(), Code::kResourceExhausted) << ended.status().to_string();
  EXPECT_NE(
      ended.status().message().find("step 0: its gradients do not fit into the log of shard "),
      std::string::npos)
      << ended.status().message();
}

// Nor does one of whose gradients a single range has more than half of the log.
TEST_F(PsSync, ARangeOfAStepThatDoesNotFitIntoTheLogIsAnError) {
  const Served served(Served::small(1));
  const Child server = served.server();
  const auto one = client(served, 1, 1);
  const Table wide =
      open(*one, {.name = "wide", .kind = TableKind::kDirect, .rows = 6400, .dim = 100});
  const std::vector<float> gradients(100 * 400);  // 160,000 bytes; the log has 256 KiB
  ASSERT_TRUE(one->next_leaf()->has_value());
  ASSERT_TRUE(one->push(wide, all_ids(400), bytes_of(gradients)).ok());
  const auto ended = one->next_leaf();
  EXPECT_EQ(ended.code(), Code::kResourceExhausted) << ended.status().to_string();
  EXPECT_EQ(ended.status().message(),
            "step 0: its gradients do not fit into the log of shard 0, 262144 bytes; expected more "
            "servers or smaller tables");
}

}  // namespace
}  // namespace regroup::collective::ps::testing::sync
