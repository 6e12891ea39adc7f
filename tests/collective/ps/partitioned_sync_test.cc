// Mode sync at several stores: whatever numbers of stores, shards and clients there are and
// whatever is killed, the tables have the bits of one client at one store. Each store's servers and
// gateway are processes; a client is on the host of one store, or of none.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "collective/ps/backend.h"
#include "collective/ps/partition.h"
#include "tests/collective/ps/hosts.h"
#include "tests/collective/ps/training.h"

namespace regroup::collective::ps::testing::partitioned_sync {
namespace {

using base::Code;
using namespace training;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

class PsPartitionedSync : public ::testing::Test {
 protected:
  PsPartitionedSync() {
    leaves_ = static_cast<std::atomic<std::uint64_t>*>(
        ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  }
  ~PsPartitionedSync() override { ::munmap(static_cast<void*>(leaves_), 4096); }
  PsPartitionedSync(const PsPartitionedSync&) = delete;
  PsPartitionedSync& operator=(const PsPartitionedSync&) = delete;

  Child worker(const Hosts& hosts, std::uint64_t number, std::uint64_t steps,
               std::uint32_t replicas = 1) {
    return Child([this, &hosts, number, steps, replicas] {
      auto client = Client::attach(hosts.list(number, sync_of(kLeaves)), replicas);
      const base::Status status =
          client.ok() ? train_until(**client, steps, *leaves_) : client.status();
      if (!status.ok()) ::dprintf(2, "%s\n", status.to_string().c_str());
      return status.ok() && !::testing::Test::HasFailure() ? 0 : 1;
    });
  }
  // Waits for so many leaves, or the end of step `steps`.
  void await_more_leaves(Hosts& hosts, std::uint64_t count, std::uint64_t steps,
                         std::size_t host = 0) const {
    const std::uint64_t enough = *leaves_ + count;
    const StepWords& words = hosts.words(host);
    for (const base::TimePoint end = in(kLong); *leaves_ < enough && words.applied < steps;
         ::usleep(200))
      ASSERT_LT(in(0s), end) << "no more leaves in step " << words.applied;
  }
  static std::uint32_t result(const Hosts& hosts, std::uint64_t steps, std::uint64_t number = 1000,
                              std::uint32_t replicas = 1) {
    const auto last = hosts.client(number, sync_of(kLeaves), replicas);
    return last ? checked_digest(*last, steps) : 0;
  }
  // Of one client at one store with one shard.
  std::uint32_t undisturbed(std::uint64_t steps) {
    const Served served(Served::small(1));
    const Child server = served.server();
    auto client = Client::attach({.memory = to_text(served.memory.get()),
                                  .client = 1,
                                  .deadline = kLong,
                                  .consistency = sync_of(kLeaves)});
    EXPECT_TRUE(client.ok()) << client.status().to_string();
    const base::Status trained = train_until(**client, steps, *leaves_);
    EXPECT_TRUE(trained.ok()) << trained.to_string();
    return checked_digest(**client, steps);
  }

  // Of a step of one leaf, which adds 1 to all of counts(). Returns once the store has logged it,
  // and forgets the client.
  static void end_leaf_at_store_0(Hosts& hosts, const Leaf& leaf) {
    const TablePartition partition(counts(), 2, 2);
    const std::array<StoreSet, 2> stores{1, 2};
    const auto parts = partition.split(all_ids(100), stores);
    const auto store = Client::StoreBackend::attach(hosts.list(1, sync_of(1))[0], in(kLong));
    ASSERT_TRUE(parts.ok() && store.ok()) << store.status().to_string();
    const auto table = (*store)->open(partition.part(0));
    ASSERT_TRUE(table.ok()) << table.status().to_string();
    ASSERT_TRUE((*store)->begin_leaf(leaf).ok());
    const std::vector<std::int64_t>& ids = parts->parts[0].ids;
    ASSERT_TRUE((*store)->push(*table, ids, bytes_of(ones_of(ids.size())), {}).ok());
    const base::Status ended = (*store)->end_leaf(in(kLong));
    ASSERT_TRUE(ended.ok()) << ended.to_string();
    const StepWords& words = hosts.words(0);
    for (const base::TimePoint end = in(kLong); words.logged != leaf.step + 1; ::usleep(200))
      ASSERT_LT(in(0s), end) << "store 0 does not log the step";
  }

  std::atomic<std::uint64_t>* leaves_;  // that were computed
};

TEST_F(PsPartitionedSync, BitsDoNotDependOnTheNumberOfStores) {
  constexpr std::uint64_t kSteps = 8;
  const std::uint32_t expected = undisturbed(kSteps);
  for (const auto& [shards, clients] : {std::pair(std::vector<std::uint32_t>{1, 1}, 1),
                                        std::pair(std::vector<std::uint32_t>{2, 1}, 3),
                                        std::pair(std::vector<std::uint32_t>{1, 2, 3}, 4)}) {
    Hosts hosts(shards);
    std::vector<Child> workers;
    for (int i = 0; i < clients; ++i)
      workers.push_back(worker(hosts, static_cast<std::uint64_t>(i), kSteps));
    for (Child& one : workers) EXPECT_EQ(one.end(), 0);
    EXPECT_EQ(result(hosts, kSteps), expected) << shards.size() << " stores";
  }
}

TEST_F(PsPartitionedSync, BitsAreThoseOfAnUndisturbedRunWhateverIsKilled) {
  const int schedules = std::getenv("REGROUP_TEST_FULL") != nullptr ? 100 : 4;
  constexpr std::uint64_t kSteps = 24;
  const std::uint32_t expected = undisturbed(kSteps);
  for (int schedule = 0; schedule < schedules; ++schedule) {
    std::mt19937 random(static_cast<unsigned>(schedule));
    std::vector<std::uint32_t> shards(2 + random() % 2);
    for (std::uint32_t& count : shards) count = 1 + random() % 2;
    Hosts hosts(shards);
    std::uint64_t next = 0;
    std::vector<Child> workers;
    for (int i = 0; i < 3; ++i) workers.push_back(worker(hosts, next++, kSteps));
    for (int kill = 0; kill < 8; ++kill) {
      await_more_leaves(hosts, random() % 10, kSteps);
      ::usleep(random() % 2000);
      if (random() % 2 == 0) {
        hosts.kill_server(random() % hosts.count());
      } else {
        Child& victim = workers[random() % workers.size()];
        victim.end(SIGKILL);
        victim = worker(hosts, next++, kSteps);
      }
    }
    for (Child& one : workers) EXPECT_EQ(one.end(), 0);
    EXPECT_EQ(result(hosts, kSteps), expected) << "schedule " << schedule;
  }
}

// Store 0, which has the claims, or another one is lost; servers and clients are killed, too. The
// replicas that are left have the same bits, each of them.
TEST_F(PsPartitionedSync, BitsAreThoseOfAnUndisturbedRunThoughAStoreIsLost) {
  constexpr std::uint64_t kSteps = 24;
  const std::uint32_t expected = undisturbed(kSteps);
  const int schedules = std::getenv("REGROUP_TEST_FULL") != nullptr ? 100 : 2;
  for (int schedule = 0; schedule < schedules; ++schedule) {
    std::mt19937 random(static_cast<unsigned>(schedule));
    Hosts hosts({1 + static_cast<std::uint32_t>(random() % 2), 1, 2});
    const std::size_t lost = schedule % 2 == 0 ? 0 : 1 + random() % 2;
    const std::size_t lives = lost == 0 ? 1 : 0;
    std::uint64_t next = 0;
    const auto begin = [&] {  // on a host that is not lost
      while (next % 4 == lost) ++next;
      return worker(hosts, next++, kSteps, 2);
    };
    std::vector<Child> workers;
    for (int i = 0; i < 3; ++i) workers.push_back(begin());
    for (int event = 0; event < 5; ++event) {
      await_more_leaves(hosts, random() % 15, kSteps, lives);
      if (event == 2) {
        hosts.lose(lost);
        hosts.note_lost(lost);
      } else if (random() % 2 == 0) {
        hosts.kill_server(lives);
      } else {
        Child& victim = workers[random() % workers.size()];
        victim.end(SIGKILL);
        victim = begin();
      }
    }
    for (Child& one : workers) EXPECT_EQ(one.end(), 0);
    EXPECT_EQ(result(hosts, kSteps, 1003, 2), expected) << "schedule " << schedule;
  }
}

// Both stores have the whole tables, and each alone gives the result.
TEST_F(PsPartitionedSync, ReplicasHaveTheSameBits) {
  constexpr std::uint64_t kSteps = 8;
  const std::uint32_t expected = undisturbed(kSteps);
  for (const std::size_t lost : {0U, 1U}) {
    Hosts hosts({1, 2});
    Child one = worker(hosts, 0, kSteps, 2), two = worker(hosts, 2, kSteps, 2);
    EXPECT_EQ(one.end(), 0);
    EXPECT_EQ(two.end(), 0);
    EXPECT_EQ(result(hosts, kSteps, 1001, 2), expected);
    hosts.lose(lost);
    hosts.note_lost(lost);
    EXPECT_EQ(result(hosts, kSteps, 1001, 2), expected) << "store " << lost << " is lost";
  }
}

TEST_F(PsPartitionedSync, AllClientsMayBeKilled) {
  constexpr std::uint64_t kSteps = 20;
  const std::uint32_t expected = undisturbed(kSteps);
  Hosts hosts({1, 2});
  for (std::uint64_t round = 0; round < 5; ++round) {
    Child one = worker(hosts, 2 * round, kSteps), two = worker(hosts, 2 * round + 1, kSteps);
    await_more_leaves(hosts, 6 + round, kSteps);
    one.end(SIGKILL);
    two.end(SIGKILL);
  }
  EXPECT_EQ(worker(hosts, 20, kSteps).end(), 0);
  EXPECT_EQ(result(hosts, kSteps), expected);
}

// A client dies after it has ended its leaf, the only one of the step, at store 0, and before it
// does so at store 1. Store 0 applies nothing, and another client computes the leaf again.
TEST_F(PsPartitionedSync, AStepIsAppliedInAllStoresOrInNone) {
  Hosts hosts({1, 1});
  const auto add_to_all = [](Client& client) {
    const Table counted = open(client, counts());
    std::vector<Leaf> leaves;
    while (const auto leaf = *client.next_leaf()) {
      leaves.push_back(*leaf);
      EXPECT_TRUE(client.push(counted, all_ids(100), bytes_of(ones_of(100))).ok());
    }
    return leaves;
  };
  EXPECT_EQ(add_to_all(*hosts.client(0, sync_of(1))), (std::vector<Leaf>{{0, 0}}));
  end_leaf_at_store_0(hosts, {1, 0});
  StepWords& first = hosts.words(0);
  hosts.kill_server(0);
  hosts.kill_server(1);
  const auto next = hosts.client(2, sync_of(1));
  EXPECT_EQ(next->clock(), 1U);
  const Table counted = open(*next, counts());
  EXPECT_EQ(pull<std::int64_t>(*next, counted, all_ids(100), 1), ones_of(100));
  EXPECT_EQ(first.applied.load(), 1U);
  EXPECT_EQ(add_to_all(*next), (std::vector<Leaf>{{1, 0}}));
  EXPECT_EQ(first.applied.load(), 2U);
  EXPECT_EQ(pull<std::int64_t>(*next, counted, all_ids(100), 1), std::vector<std::int64_t>(100, 2));
}

// The client that has told store 0 that all stores have logged the step dies before it tells
// store 1. Until another one does, no pull has rows of both steps.
TEST_F(PsPartitionedSync, WhoeverComesNextTellsTheStoresThatAllHaveLoggedAStep) {
  Hosts hosts({2, 2});
  StepWords& first = hosts.words(0);
  StepWords& second = hosts.words(1);
  {
    const auto whole = hosts.client(0, sync_of(1));
    const Table counted = open(*whole, counts());
    ASSERT_EQ(*whole->next_leaf(), (Leaf{0, 0}));
    ASSERT_TRUE(whole->push(counted, all_ids(100), bytes_of(ones_of(100))).ok());
    ASSERT_EQ(*whole->next_leaf(), std::nullopt);
  }
  {
    // Both stores log a step of one leaf without pushes. No client of both is there to tell them.
    std::vector<std::unique_ptr<Client::StoreBackend>> stores;
    for (const ClientOptions& options : hosts.list(1, sync_of(1))) {
      auto store = Client::StoreBackend::attach(options, in(kLong));
      ASSERT_TRUE(store.ok()) << store.status().to_string();
      ASSERT_TRUE((*store)->begin_leaf({1, 0}).ok());
      const base::Status ended = (*store)->end_leaf(in(kLong));
      ASSERT_TRUE(ended.ok()) << ended.to_string();
      stores.push_back(std::move(*store));
    }
    for (const base::TimePoint end = in(kLong); first.logged != 2 || second.logged != 2;
         ::usleep(200))
      ASSERT_LT(in(0s), end) << "the step is not logged";
    ::usleep(20'000);
    EXPECT_EQ(first.applied.load(), 1U);
    EXPECT_EQ(second.applied.load(), 1U);
    ASSERT_TRUE(stores[0]->propose(2).ok());
    for (const base::TimePoint end = in(kLong); first.applied != 2; ::usleep(200))
      ASSERT_LT(in(0s), end) << "store 0 does not apply the step";
    EXPECT_EQ(second.applied.load(), 1U);
  }
  const auto next = hosts.client(2, sync_of(1));
  EXPECT_EQ(pull<std::int64_t>(*next, open(*next, counts()), all_ids(100), 1), ones_of(100));
  EXPECT_EQ(second.applied.load(), 2U);
  const bool knew = next->clock() == 2;
  EXPECT_EQ(*next->next_leaf(), knew ? std::optional(Leaf{2, 0}) : std::nullopt);
  EXPECT_EQ(next->clock(), 2U);
}

// A client that stands holds up nobody, and what it pushes later counts no second time.
TEST_F(PsPartitionedSync, LeavesOfAStoppedClientAreComputedByOthers) {
  Hosts hosts({1, 1});
  const auto stopped = hosts.client(0, sync_of(kLeaves)), other = hosts.client(2, sync_of(kLeaves));
  const Table table = open(*stopped, counts()), same = open(*other, counts());
  const auto push = [](Client& client, Table to, const Leaf& leaf) {
    const std::vector<std::int64_t> ids{leaf.number, 99};
    EXPECT_TRUE(client.push(to, ids, bytes_of(ones_of(2))).ok());
  };
  const auto begun = *stopped->next_leaf();
  ASSERT_TRUE(begun);
  push(*stopped, table, *begun);
  while (const auto leaf = *other->next_leaf()) push(*other, same, *leaf);
  EXPECT_EQ(other->clock(), 1U);
  EXPECT_EQ(*stopped->next_leaf(), std::nullopt);
  EXPECT_EQ(stopped->clock(), 1U);
  EXPECT_EQ(pull<std::int64_t>(*stopped, table, {0, 5, 99}, 1),
            (std::vector<std::int64_t>{1, 1, kLeaves}));
}

// A store's server stands, so pushes of a leaf, and its end, reach their deadlines. Errors that the
// gateway notes of them are not those of the leaf that begins again.
TEST_F(PsPartitionedSync, ALeafThatBeginsAgainHasNoErrorsOfTheAttemptBefore) {
  Hosts hosts({1, 1});
  auto attached = Client::attach(hosts.list(2, sync_of(1), 2s));
  ASSERT_TRUE(attached.ok()) << attached.status().to_string();
  Client& client = **attached;
  const Table table = open(client, counts_of(64));
  const std::vector<std::int64_t> ids = up_to(64);
  const auto push = [&] {
    return client.push(table, ids, bytes_of(ones_of(ids.size() * 64))).status();
  };
  ASSERT_EQ(*client.next_leaf(), (Leaf{0, 0}));
  hosts.server(0).stop();
  base::Status status;
  for (int begun = 0; status.ok() && begun < 100'000; ++begun) status = push();
  ASSERT_EQ(status.code(), Code::kDeadlineExceeded) << status.to_string();
  EXPECT_EQ(client.next_leaf().code(), Code::kDeadlineExceeded);
  hosts.server(0).signal(SIGCONT);
  for (const base::TimePoint end = in(kLong); client.clock() == 0;) {
    ASSERT_LT(in(0s), end) << "the step does not end";
    const auto leaf = client.next_leaf();
    if (leaf.code() == Code::kDeadlineExceeded) continue;
    ASSERT_TRUE(leaf.ok()) << leaf.status().to_string();
    if (!*leaf) break;
    if (const base::Status pushed = push(); pushed.code() != Code::kDeadlineExceeded) {
      ASSERT_TRUE(pushed.ok()) << pushed.to_string();
    }
  }
  EXPECT_EQ(pull<std::int64_t>(client, table, {5}, 64), ones_of(64));
}

TEST_F(PsPartitionedSync, WhatIsNotForItIsRefused) {
  Hosts hosts({1, 1});
  auto one = hosts.client(0, sync_of(2));
  const Table table = open(*one, counts());
  const std::vector<std::int64_t> id{5}, add{1};
  EXPECT_EQ(one->push(table, id, bytes_of(add)).status().message(),
            "push to table counts: no leaf is begun; in mode sync pushes belong to the leaf that "
            "next_leaf() has returned");
  EXPECT_EQ(one->advance().code(), Code::kInvalidArgument);
  EXPECT_EQ(Client::attach(hosts.list(1, sync_of(3))).status().message(),
            "store 0 of 2 on host node0: leaves 3 here, 2 at worker 0; expected the same in all "
            "processes of the job");
}

// Store 0 has the sum of a step of one leaf, and its client has ended: the other store must get the
// same leaves.
TEST_F(PsPartitionedSync, AStepThatAStoreHasKeepsItsNumberOfLeaves) {
  Hosts hosts({1, 1});
  static_cast<void>(open(*hosts.client(0, sync_of(1)), counts()));
  end_leaf_at_store_0(hosts, {0, 0});
  hosts.await_no_client();
  EXPECT_EQ(Client::attach(hosts.list(1, sync_of(3))).status().message(),
            "store 0 of 2 on host node0: step 0: its sum is of 1 leaves of earlier clients, and "
            "other stores lack it; expected leaves=1, got 3");
}

}  // namespace
}  // namespace regroup::collective::ps::testing::partitioned_sync
