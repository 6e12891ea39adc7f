// More than 4 GiB: of a contribution, of a block, and in the arena. Only with REGROUP_TEST_FULL.
// Ordinary memory costs little here: a block is one piece of memory mapped again and again, of a
// length that does not divide 4 GiB, and another piece at its end; an offset computed in 32 bits
// yields wrong data, or corrupts the beginning.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "collective/shm/factory.h"
#include "tests/collective/harness.h"

namespace regroup::collective::testing::shm_large {
namespace {

constexpr std::size_t kPiece = (16 << 20) + (64 << 10);
constexpr std::size_t kPieces = 256;
constexpr std::size_t kBlock = kPieces * kPiece;
static_assert(kBlock > 1ULL << 32 && (1ULL << 32) % kPiece != 0);
constexpr int kRanks = 2;
constexpr std::size_t kMargin = 2ULL << 30;  // for all else

// Bytes that the system can give, as it says.
std::size_t available_memory() {
  std::ifstream in("/proc/meminfo");
  std::size_t kib = 0;
  for (std::string word; in >> word;) {
    if (word == "MemAvailable:") in >> kib;
  }
  return kib << 10;
}

// `blocks` consecutive blocks.
class Memory {
 public:
  explicit Memory(std::size_t blocks)
      : bytes_(std::max<std::size_t>(blocks, 1) * kBlock), blocks_(blocks) {
    void* base =
        ::mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT_NE(base, MAP_FAILED);
    base_ = static_cast<std::byte*>(base);
    for (std::size_t block = 0; block < blocks; ++block) map(base_ + block * kBlock);
  }
  ~Memory() { ::munmap(base_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  [[nodiscard]] std::span<std::byte> all() const { return {base_, blocks_ * kBlock}; }
  // What every piece of the block holds, but the last, and the last.
  [[nodiscard]] std::span<std::byte> body(std::size_t block) const {
    return {base_ + block * kBlock, kPiece};
  }
  [[nodiscard]] std::span<std::byte> end(std::size_t block) const {
    return {base_ + (block + 1) * kBlock - kPiece, kPiece};
  }

 private:
  static void map(std::byte* at) {
    const base::Fd fd(::memfd_create("large", MFD_CLOEXEC));
    ASSERT_EQ(::ftruncate(fd.get(), 2 * kPiece), 0);
    for (std::size_t piece = 0; piece < kPieces; ++piece) {
      const off_t from = piece + 1 == kPieces ? kPiece : 0;
      ASSERT_NE(::mmap(at + piece * kPiece, kPiece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                       fd.get(), from),
                MAP_FAILED);
    }
  }

  const std::size_t bytes_;
  const std::size_t blocks_;
  std::byte* base_ = nullptr;
};

struct Row {
  Kind kind;
  std::size_t ins[kRanks];  // blocks, by rank
  std::size_t outs[kRanks];
};
constexpr Row kRows[] = {
    {Kind::kAllreduce, {1, 1}, {1, 1}},     {Kind::kReduce, {1, 1}, {0, 1}},
    {Kind::kReduceScatter, {2, 2}, {1, 1}}, {Kind::kAllgather, {1, 1}, {2, 2}},
    {Kind::kGather, {1, 1}, {0, 2}},        {Kind::kScatter, {0, 2}, {1, 1}},
    {Kind::kAlltoall, {2, 2}, {2, 2}},      {Kind::kBroadcast, {0, 0}, {1, 1}},
    {Kind::kSend, {1, 0}, {0, 1}},
};
constexpr int kRoot = 1;

class ShmLarge : public ::testing::TestWithParam<Row> {};

Bytes piece_of(int rank, std::size_t block, int part) {
  return make_leaf(
      Dtype::kInt32, kPiece / 4,
      1000 * static_cast<std::uint64_t>(rank) + 10 * block + static_cast<std::uint64_t>(part));
}

// The inputs of the ranks, one piece of each block.
std::vector<Bytes> inputs_of(const Row& row, int part) {
  std::vector<Bytes> inputs(kRanks);
  for (int r = 0; r < kRanks; ++r) {
    const std::size_t blocks = row.kind == Kind::kBroadcast && r == kRoot ? 1 : row.ins[r];
    for (std::size_t block = 0; block < blocks; ++block) {
      const Bytes piece = piece_of(r, block, part);
      inputs[static_cast<std::size_t>(r)].insert(inputs[static_cast<std::size_t>(r)].end(),
                                                 piece.begin(), piece.end());
    }
  }
  return inputs;
}

void put(const Bytes& pieces, const Memory& memory, int part) {
  for (std::size_t block = 0; block * kPiece < pieces.size(); ++block) {
    const auto to = part == 0 ? memory.body(block) : memory.end(block);
    std::memcpy(to.data(), pieces.data() + block * kPiece, kPiece);
  }
}

bool holds(const Memory& memory, const Bytes& pieces, int part) {
  for (std::size_t block = 0; block * kPiece < pieces.size(); ++block) {
    const auto have = part == 0 ? memory.body(block) : memory.end(block);
    if (std::memcmp(have.data(), pieces.data() + block * kPiece, kPiece) != 0) return false;
  }
  return memory.all().size() / kBlock * kPiece == pieces.size();
}

TEST_P(ShmLarge, RunsEveryOperationAbove4GiB) {
  if (std::getenv("REGROUP_TEST_FULL") == nullptr) GTEST_SKIP() << "only with REGROUP_TEST_FULL";
  const Row& row = GetParam();
  const shmem::Arena arena = make_arena({.slots = kRanks});
  const proto::World world = make_world(1, kRanks);
  const std::vector<Bytes> inputs[] = {inputs_of(row, 0), inputs_of(row, 1)};
  run_all(Ranks::kThreads, kRanks, [&](int rank) {
    const auto self = static_cast<std::size_t>(rank);
    const Memory in(row.ins[rank]);
    const Memory out(row.outs[rank]);
    for (int part : {0, 1}) put(inputs[part][self], row.kind == Kind::kBroadcast ? out : in, part);
    Operation operation{row.kind, Dtype::kInt32, Op::kSum, kRoot, in.all(), out.all()};
    if (row.kind == Kind::kSend && rank == kRoot) operation = Operation::receive(out.all(), 0);
    auto comm = shm::make_shm(arena, world, {0, static_cast<proto::SlotIndex>(rank)});
    ASSERT_TRUE(comm.ok()) << comm.status().to_string();
    const auto status =
        (*comm)->run(operation, base::SystemClock().now() + std::chrono::minutes(5));
    ASSERT_TRUE(status.ok()) << status.to_string();
    for (int part : {0, 1}) {
      const Bytes want = row.kind == Kind::kSend ? (rank == kRoot ? inputs[part][0] : Bytes())
                                                 : reference_output(operation, inputs[part], rank);
      EXPECT_TRUE(holds(out, want, part)) << "rank " << rank << ", part " << part;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Operations, ShmLarge, ::testing::ValuesIn(kRows),
                         [](const auto& info) { return name_of(info.param.kind); });

// An arena with a reserved member slot for each rank.
base::Result<shmem::Arena> arena_of(std::size_t elements) {
  auto arena = shmem::Arena::create({.slots = kRanks, .elements = elements});
  for (proto::SlotIndex slot = 0; arena.ok() && slot < kRanks; ++slot) {
    arena->assign_slot(slot, slot);
    REGROUP_RETURN_IF_ERROR(arena->reserve_slot(slot));
  }
  return arena;
}

// Inputs and the shared result all in one arena of 9 GiB. Both ranks bring the same memory.
TEST(ShmLargeArena, ReducesIntoOneSharedResultAbove4GiB) {
  if (std::getenv("REGROUP_TEST_FULL") == nullptr) GTEST_SKIP() << "only with REGROUP_TEST_FULL";
  auto arena = arena_of(kBlock / 4 / 3 + (1 << 20));
  if (arena.code() == base::Code::kResourceExhausted) GTEST_SKIP() << arena.status().to_string();
  ASSERT_TRUE(arena.ok()) << arena.status().to_string();
  std::byte* const base = arena->result(0).data();  // results and buffers follow each other
  const std::span<std::byte> in(base, kBlock);
  const std::span<std::byte> out(base + kBlock, kBlock);
  ASSERT_TRUE(arena->offset_of(out).has_value());
  const Bytes piece = piece_of(0, 0, 0);
  for (std::size_t at = 0; at < kBlock; at += kPiece)
    std::memcpy(in.data() + at, piece.data(), kPiece);
  const proto::World world = make_world(1, kRanks);
  run_all(Ranks::kThreads, kRanks, [&](int rank) {
    auto comm = shm::make_shm(*arena, world, {0, static_cast<proto::SlotIndex>(rank)});
    ASSERT_TRUE(comm.ok()) << comm.status().to_string();
    const auto status = (*comm)->allreduce(in, out, Dtype::kInt32,
                                           base::SystemClock().now() + std::chrono::minutes(5));
    ASSERT_TRUE(status.ok()) << status.to_string();
  });
  const std::vector<Bytes> leaves{piece, piece};
  const Bytes want = reference_sum(Dtype::kInt32, leaves, {0, kRanks});
  for (std::size_t at = 0; at < kBlock; at += kPiece) {
    ASSERT_EQ(std::memcmp(out.data() + at, want.data(), kPiece), 0) << "at " << at;
  }
}

// Elements that tell where they are: a block has less than 2^32.
void count_up(std::span<std::byte> memory, std::uint32_t factor) {
  const std::span elements(reinterpret_cast<std::uint32_t*>(memory.data()), memory.size() / 4);
  for (std::size_t i = 0; i < elements.size(); ++i)
    elements[i] = static_cast<std::uint32_t>(i) * factor;
}

// Each rank has memory of its own, all of it real.
TEST(ShmLargeInPlace, ReducesInPlaceAbove4GiB) {
  if (std::getenv("REGROUP_TEST_FULL") == nullptr) GTEST_SKIP() << "only with REGROUP_TEST_FULL";
  if (available_memory() < kRanks * kBlock + kMargin) GTEST_SKIP() << "too little memory";
  const shmem::Arena arena = make_arena({.slots = kRanks});
  const proto::World world = make_world(1, kRanks);
  run_all(Ranks::kThreads, kRanks, [&](int rank) {
    void* memory =
        ::mmap(nullptr, kBlock, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    const std::span<std::byte> data(static_cast<std::byte*>(memory), kBlock);
    count_up(data, static_cast<std::uint32_t>(rank) + 1);
    auto comm = shm::make_shm(arena, world, {0, static_cast<proto::SlotIndex>(rank)});
    ASSERT_TRUE(comm.ok()) << comm.status().to_string();
    const auto status = (*comm)->allreduce(data, data, Dtype::kInt32,
                                           base::SystemClock().now() + std::chrono::minutes(5));
    ASSERT_TRUE(status.ok()) << status.to_string();
    const std::span sums(static_cast<const std::uint32_t*>(memory), kBlock / 4);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < sums.size(); ++i)
      wrong += sums[i] != static_cast<std::uint32_t>(i) * 3;
    EXPECT_EQ(wrong, 0U) << "rank " << rank;
    ::munmap(memory, kBlock);
  });
}

// Both ranks bring the same 4 GiB of the arena, half a block for each, and have an output of as
// many there.
TEST(ShmLargeArena, ExchangesAbove4GiB) {
  if (std::getenv("REGROUP_TEST_FULL") == nullptr) GTEST_SKIP() << "only with REGROUP_TEST_FULL";
  if (available_memory() < (1 + kRanks) * kBlock + kMargin) GTEST_SKIP() << "too little memory";
  auto arena = arena_of(kBlock / 4 / 2 + (1 << 20));
  if (arena.code() == base::Code::kResourceExhausted) GTEST_SKIP() << arena.status().to_string();
  ASSERT_TRUE(arena.ok()) << arena.status().to_string();
  std::byte* const base = arena->result(0).data();  // results and buffers follow each other
  const std::span<std::byte> in(base, kBlock);
  count_up(in, 1);
  const proto::World world = make_world(1, kRanks);
  run_all(Ranks::kThreads, kRanks, [&](int rank) {
    const auto self = static_cast<std::size_t>(rank);
    const std::span<std::byte> out(base + (1 + self) * kBlock, kBlock);
    ASSERT_TRUE(arena->offset_of(out).has_value());
    auto comm = shm::make_shm(*arena, world, {0, static_cast<proto::SlotIndex>(rank)});
    ASSERT_TRUE(comm.ok()) << comm.status().to_string();
    const auto status = (*comm)->run(Operation::alltoall(in, out),
                                     base::SystemClock().now() + std::chrono::minutes(5));
    ASSERT_TRUE(status.ok()) << status.to_string();
    const std::size_t half = kBlock / kRanks;
    for (std::size_t from = 0; from < kRanks; ++from)
      EXPECT_EQ(std::memcmp(out.data() + from * half, in.data() + self * half, half), 0)
          << "rank " << rank;
  });
}

}  // namespace
}  // namespace regroup::collective::testing::shm_large
