// The phases of an operation on a data path, and small contributions in inline chunks, without a
// communicator: the ranks of one arena go through their phases in one thread.
#include "collective/shm/data_path.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "collective/shm/inline_exchange.h"
#include "tests/collective/harness.h"
#include "tests/collective/reference.h"

namespace regroup::collective::testing::shm_data_path {
namespace {

constexpr std::size_t kRanks = 3;

std::vector<shm::Peer> peers_of(const shmem::Arena& arena) {
  std::vector<shm::Peer> peers;
  for (proto::SlotIndex slot = 0; slot < kRanks; ++slot) {
    shmem::MemberSlot& member = arena.member_slot(slot);
    peers.push_back({&member, &member.channels[0]});
  }
  return peers;
}

std::vector<proto::SlotIndex> slots() {
  std::vector<proto::SlotIndex> all(kRanks);
  std::iota(all.begin(), all.end(), proto::SlotIndex{0});
  return all;
}

reduce::TreeFold fold_of_ranks() {
  std::vector<proto::Interval> leaves;
  for (std::uint32_t i = 0; i < kRanks; ++i) leaves.push_back({i, i + 1});
  return reduce::TreeFold::compile(leaves, kRanks).value();
}

// The memory of one rank, and its data path.
struct Rank {
  Rank(const shmem::Arena& arena, int rank, shm::SingleCopyMode single_copy)
      : sync(1, {}, peers_of(arena), rank),
        data({arena, sync, canary, cores, numa_node}, slots(), rank, fold_of_ranks(),
             shm::StorePolicy::kPlain, single_copy) {
    cores.count(true);
  }
  // The arrival at a point that carries no data.
  void arrive() { EXPECT_TRUE(sync.arrive(signature_of(Operation::barrier(), kRanks)).ok()); }

  shm::SyncPoints sync;
  shm::LivenessCanary canary;
  CoreUse cores{true};
  std::optional<int> numa_node;
  shm::DataPath data;
};

class ShmDataPath : public ::testing::Test {
 protected:
  explicit ShmDataPath(shm::SingleCopyMode single_copy = shm::SingleCopyMode::kNever)
      : arena_(make_arena({.slots = kRanks})) {
    for (std::size_t r = 0; r < kRanks; ++r)
      ranks_.push_back(std::make_unique<Rank>(arena_, static_cast<int>(r), single_copy));
    for (auto& rank : ranks_) rank->arrive();
  }

  // Runs `operations`, one a rank, from phase to phase; all ranks are in the same phase.
  void run(const std::vector<Operation>& operations) {
    for (std::size_t r = 0; r < kRanks; ++r) {
      shm::DataPath& data = ranks_[r]->data;
      const shm::Planning planning{static_cast<int>(r), kRanks, false, shm::InlineMode::kAlways,
                                   data.buffers().capacity()};
      data.begin_phases(shm::plan_of(operations[r], planning, false, false),
                        signature_of(operations[r], kRanks), operations[r], false);
    }
    for (std::uint64_t phase = 0; phase < ranks_[0]->data.phases(); ++phase) {
      for (std::size_t r = 0; r < kRanks; ++r) work(*ranks_[r], operations[r], phase);
      if (phase + 1 == ranks_[0]->data.phases()) return;
      for (std::size_t r = 0; r < kRanks; ++r) after_point(*ranks_[r], operations[r], phase + 1);
    }
  }

 private:
  static void work(Rank& rank, const Operation& o, std::uint64_t phase) {
    shm::DataPath& data = rank.data;
    if (phase == 1 && data.plan().uses_inline_chunks()) {
      ASSERT_TRUE(data.fetch_inline_chunks(o));
    }
    if (phase == 1 && data.plan().single_copy()) {
      ASSERT_TRUE(data.read_all(o, [](std::size_t) { return base::Status(); }).ok());
    }
    const Input payload = data.work(o, phase);
    if (phase + 1 == data.phases()) return;
    ASSERT_TRUE(rank.sync.arrive(signature_of(o, kRanks), payload).ok());
  }
  static void after_point(Rank& rank, const Operation& o, std::uint64_t phase) {
    const auto here = rank.sync.all_arrived(true);
    ASSERT_TRUE(here.ok() && *here);
    if (phase == 1) rank.data.collect_offsets(o);
    if (phase == 2 && rank.data.plan().single_copy()) rank.data.collect_votes();
  }

 protected:
  shmem::Arena arena_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

// Every way that contributions travel: in arrivals, inline chunks, one chunk, many by slices.
TEST_F(ShmDataPath, SumsContributionsOfAnySize) {
  for (const std::size_t count : {1U, 14U, 100U, 900U, 5'000U, 100'000U, 700'001U}) {
    std::vector<std::vector<float>> in(kRanks), out(kRanks, std::vector<float>(count));
    std::vector<Operation> operations;
    for (std::size_t r = 0; r < kRanks; ++r) {
      in[r].assign(count, static_cast<float>(r + 1));
      operations.push_back(Operation::allreduce(std::as_bytes(std::span(in[r])),
                                                std::as_writable_bytes(std::span(out[r])),
                                                Dtype::kFloat32, Op::kSum));
    }
    run(operations);
    for (const auto& result : out) EXPECT_EQ(result, std::vector<float>(count, 6)) << count;
  }
}

TEST_F(ShmDataPath, GathersTheBlocksOfAllRanks) {
  for (const std::size_t bytes : {8U, 500U, 6'000U, 1'000'000U}) {
    std::vector<Bytes> in(kRanks), out(kRanks, Bytes(kRanks * bytes));
    std::vector<Operation> operations;
    for (std::size_t r = 0; r < kRanks; ++r) {
      in[r].assign(bytes, std::byte(r + 1));
      operations.push_back(Operation::allgather(in[r], out[r]));
    }
    run(operations);
    for (const Bytes& result : out) {
      for (std::size_t r = 0; r < kRanks; ++r) EXPECT_EQ(result[r * bytes], std::byte(r + 1));
      EXPECT_EQ(result.back(), std::byte(kRanks));
    }
  }
}

// Only the root of a broadcast needs nothing from its peers, and not before its last arrival.
TEST_F(ShmDataPath, LetsTheRootOfABroadcastExitEagerly) {
  Bytes data(20'000, std::byte{1});
  const Operation o = Operation::broadcast(data, 0);
  for (int r = 0; r < 2; ++r) {
    shm::DataPath& path = ranks_[static_cast<std::size_t>(r)]->data;
    path.begin_phases(
        shm::plan_of(o, {r, kRanks, false, shm::InlineMode::kAuto, path.buffers().capacity()},
                     false, false),
        signature_of(o, kRanks), o, false);
    ASSERT_EQ(path.phases(), 2U);
    EXPECT_FALSE(path.may_exit_eagerly(o, 0));
    EXPECT_EQ(path.may_exit_eagerly(o, 1), r == 0);
  }
}

class ShmDataPathByCma : public ShmDataPath {
 protected:
  ShmDataPathByCma() : ShmDataPath(shm::SingleCopyMode::kAlways) {}
};

// Where the kernel refuses, the same operation goes through the bounce buffers.
TEST_F(ShmDataPathByCma, ScattersFromTheMemoryOfTheRoot) {
  constexpr std::size_t kBlock = 300'000;
  Bytes in(kRanks * kBlock);
  for (std::size_t r = 0; r < kRanks; ++r)
    std::fill_n(in.begin() + static_cast<std::ptrdiff_t>(r * kBlock), kBlock, std::byte(r + 1));
  std::vector<Bytes> out(kRanks, Bytes(kBlock));
  std::vector<Operation> operations;
  for (std::size_t r = 0; r < kRanks; ++r)
    operations.push_back(Operation::scatter(r == 0 ? Input(in) : Input(), out[r], 0));
  run(operations);
  for (std::size_t r = 0; r < kRanks; ++r) EXPECT_EQ(out[r], Bytes(kBlock, std::byte(r + 1)));
}

// A rank fetches what has come, and goes on from there.
TEST(ShmInlineExchange, FetchesInAnyOrderUntilAllHaveCome) {
  const shmem::Arena arena = make_arena({.slots = kRanks});
  const shm::BounceBuffers buffers(arena, slots());
  std::vector<std::unique_ptr<shm::SyncPoints>> sync;
  std::vector<shm::InlineExchange> exchanges;
  std::vector<Bytes> in(kRanks), out(kRanks, Bytes(kRanks * 100));
  std::vector<Operation> operations;
  for (std::size_t r = 0; r < kRanks; ++r) {
    sync.push_back(std::make_unique<shm::SyncPoints>(1, proto::Position(), peers_of(arena),
                                                     static_cast<int>(r)));
    exchanges.emplace_back(buffers, *sync[r], static_cast<int>(r));
    in[r].assign(100, std::byte(r + 1));
    operations.push_back(Operation::allgather(in[r], out[r]));
  }
  const auto signature = signature_of(operations[0], kRanks);
  const auto arrive = [&](std::size_t r) { ASSERT_TRUE(sync[r]->arrive(signature).ok()); };
  for (std::size_t r = 0; r < kRanks; ++r) arrive(r);
  const auto write = [&](std::size_t r) {
    exchanges[r].begin();
    exchanges[r].write(operations[r], 100, signature, false);
    arrive(r);
  };
  write(0);
  write(2);
  EXPECT_FALSE(exchanges[0].fetch(operations[0], 100));
  EXPECT_EQ(exchanges[0].missing_rank(), 1U);
  write(1);
  for (std::size_t r = 0; r < kRanks; ++r) {
    EXPECT_TRUE(exchanges[r].fetch(operations[r], 100));
    for (std::size_t from = 0; from < kRanks; ++from) {
      if (from != r) {
        EXPECT_EQ(out[r][from * 100 + 99], std::byte(from + 1));
      }
    }
  }
}

}  // namespace
}  // namespace regroup::collective::testing::shm_data_path
