// Sums over device memory by ranks that are threads or processes: the bits of the CPU's tree, waits
// that end, and errors that say whose.
#include "collective/cuda/device_reducer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/mman.h>

#include "collective/cuda/device_line.h"
#include "tests/collective/cuda/device_sums.h"

namespace regroup::collective::testing::device_reducer {
namespace {

using base::Status;
using cuda::DevicePointer;
using cuda::DeviceReducer;
using cuda::ReduceWords;
using fakes::cuda::Gpu;
using fakes::cuda::Hold;
using fakes::cuda::in_process;
using fakes::cuda::kSuccess;
using fakes::cuda::Process;
using proto::Interval;

constexpr int kMostRanks = 5;
constexpr std::size_t kSliceArea = 64 << 10;

// What the ranks of a host share; may lie in memory that processes share.
struct Board {
  ReduceWords words[kMostRanks];
  shmem::Doorbell<shmem::RealPolicy> bells[kMostRanks];
  std::atomic<std::uint32_t> revoked;  // generations up to this one
  std::atomic<int> ready;

  void ring_all() {
    for (auto& bell : bells) shmem::ring(bell);
  }
  void revoke(std::uint32_t generation) {
    revoked = generation;
    ring_all();
  }
};

// A rank of a generation.
class Member {
 public:
  // `slot` has the words and the bell, which is that of one process only: a rank may be another's
  // in the next generation. Empty: as the rank.
  Member(const Gpu& gpu, Board& board, std::vector<cuda::DeviceRank> ranks, int rank,
         std::uint32_t generation = 1, std::optional<cuda::Driver> with = {},
         std::optional<int> slot = {})
      : board_(board), generation_(generation) {
    const cuda::Driver driver = with.value_or(gpu.driver);
    EXPECT_EQ(driver.context_set(gpu.context), kSuccess);
    auto kernels = cuda::DeviceKernels::load(driver, kAnyImage);
    auto watcher = cuda::Watcher::start(driver, [&board] { board.ring_all(); });
    EXPECT_TRUE(kernels.ok() && watcher.ok());
    watcher_ = std::move(watcher).value();
    scratch_ = std::make_unique<cuda::DeviceScratch>(driver);
    reducer_ = std::make_unique<DeviceReducer>(
        driver, *kernels, *watcher_, *scratch_,
        cuda::DeviceReducerSpec{.ranks = std::move(ranks),
                                .rank = rank,
                                .generation = generation,
                                .stream = gpu.new_stream(),
                                .bell = &board.bells[slot.value_or(rank)],
                                .check = [this] { return check(); }});
  }

  [[nodiscard]] DeviceReducer& reducer() { return *reducer_; }
  void end_generation() { reducer_.reset(); }
  [[nodiscard]] Status sum(const std::vector<Interval>& nodes,
                           const std::vector<const void*>& pointers, std::uint32_t leaves,
                           DevicePointer result, std::size_t bytes, Dtype dtype,
                           base::TimePoint deadline = soon()) {
    std::vector<Partial> partials;
    for (std::size_t i = 0; i < nodes.size(); ++i)
      partials.push_back({nodes[i], {static_cast<const std::byte*>(pointers[i]), bytes}});
    return reducer_->reduce(partials, leaves, {reinterpret_cast<std::byte*>(result), bytes}, dtype,
                            deadline);
  }

 private:
  [[nodiscard]] Status check() const {
    return board_.revoked >= generation_
               ? base::revoked(fmt::format("generation {} is over", generation_))
               : Status();
  }

  Board& board_;
  const std::uint32_t generation_;
  std::unique_ptr<cuda::Watcher> watcher_;
  std::unique_ptr<cuda::DeviceScratch> scratch_;
  std::unique_ptr<DeviceReducer> reducer_;
};

// Ranks as threads, on the GPUs that `gpus` names.
std::vector<cuda::DeviceRank> ranks_on(const Gpu& gpu, Board& board, const std::vector<int>& gpus) {
  std::vector<cuda::DeviceRank> ranks;
  for (std::size_t rank = 0; rank < gpus.size(); ++rank)
    ranks.push_back({&board.words[rank], gpu.allocate(kSliceArea), kSliceArea, gpus[rank]});
  return ranks;
}

std::vector<Interval> single_leaves(std::uint32_t leaves) {
  std::vector<Interval> nodes;
  for (std::uint32_t i = 0; i < leaves; ++i) nodes.push_back({i, i + 1});
  return nodes;
}

const std::vector<int> kPlacements[] = {{0},       {0, 0},       {0, 1},         {4, 3, 4},
                                        {0, 1, 2}, {0, 0, 0, 0}, {0, 1, 0, 1, 2}};

TEST(DeviceReducer, SumsWithTheBitsOfTheCpu) {
  for (const std::vector<int>& gpus : kPlacements) {
    in_process([&] {
      const Gpu gpu;
      Board board{};
      std::mt19937_64 random(gpus.size());
      std::vector<DeviceSums> sums;
      std::vector<Dtype> dtypes;
      std::vector<Bytes> expected;
      for (const std::uint32_t leaves : {1U, 3U, 8U, 40U, 260U}) {
        for (const Dtype dtype : kFloats) {
          auto nodes = size_of(dtype) == 2 ? single_leaves(leaves) : random_cover(leaves, random);
          const std::size_t many = leaves > 8 ? 100 : 1500;
          const std::size_t count = (random() % 4 == 0 ? 1 : many) + random() % 40;
          sums.emplace_back(gpu, std::move(nodes), leaves, dtype, count, random);
          dtypes.push_back(dtype);
          expected.push_back(sums.back().folded(dtype, Op::kSum));
        }
      }
      const auto ranks = ranks_on(gpu, board, gpus);
      run_all(Ranks::kThreads, int(gpus.size()), [&](int rank) {
        Member member(gpu, board, ranks, rank);
        const DevicePointer result = gpu.allocate(kSliceArea);
        for (std::size_t i = 0; i < sums.size(); ++i) {
          const std::size_t bytes = sums[i].values[0].size();
          const Status status =
              member.sum(sums[i].nodes, sums[i].pointers, sums[i].leaves, result, bytes, dtypes[i]);
          ASSERT_TRUE(status.ok()) << status.message();
          ASSERT_EQ(download(gpu, result, bytes), expected[i])
              << "rank " << rank << " of " << gpus.size() << ", sum " << i << " of "
              << name_of(dtypes[i]);
        }
      });
    });
  }
}

TEST(DeviceReducer, GoesOnCountingInTheSameGeneration) {
  in_process([] {
    const Gpu gpu;
    Board board{};
    std::mt19937_64 random(1);
    const DeviceSums sums(gpu, {{0, 1}, {1, 2}}, 2, Dtype::kFloat32, 100, random);
    const auto ranks = ranks_on(gpu, board, {0, 1});
    const DevicePointer results[] = {gpu.allocate(400), gpu.allocate(400)};
    run_all(Ranks::kThreads, 2, [&](int rank) {
      for (int i = 0; i < 3; ++i) {
        Member member(gpu, board, ranks, rank);
        const DevicePointer result = results[rank];
        EXPECT_TRUE(member.sum(sums.nodes, sums.pointers, 2, result, 400, Dtype::kFloat32).ok());
        EXPECT_EQ(download(gpu, result, 400), sums.folded(Dtype::kFloat32, Op::kSum));
      }
    });
    EXPECT_EQ(board.words[1].gathered, (std::uint64_t{1} << 40) + 3);
  });
}

// cuMemFree waits for all work of the context, the caller's included.
TEST(DeviceReducer, NeitherASumNorTheEndOfAGenerationFreesMemory) {
  in_process([] {
    static std::atomic<int> freed = 0;
    const Gpu gpu;
    cuda::Driver driver = gpu.driver;
    driver.memory_free = [](DevicePointer) {
      freed += 1;
      return kSuccess;
    };
    Board board{};
    std::mt19937_64 random(1);
    const std::uint32_t few = 260, many = 600;  // more than a launch takes: partial sums
    const DeviceSums small(gpu, single_leaves(few), few, Dtype::kFloat32, 10, random);
    const DeviceSums large(gpu, single_leaves(many), many, Dtype::kFloat32, 100, random);
    Member member(gpu, board, ranks_on(gpu, board, {0}), 0, 1, driver);
    const DevicePointer result = gpu.allocate(400);
    EXPECT_TRUE(member.sum(small.nodes, small.pointers, few, result, 40, Dtype::kFloat32).ok());
    EXPECT_TRUE(member.sum(large.nodes, large.pointers, many, result, 400, Dtype::kFloat32).ok());
    EXPECT_EQ(download(gpu, result, 400), large.folded(Dtype::kFloat32, Op::kSum));
    member.end_generation();
    EXPECT_EQ(freed, 0);
  });
}

TEST(DeviceReducer, ARevokeEndsTheWait) {
  in_process([] {
    const Gpu gpu;
    Board board{};
    std::mt19937_64 random(1);
    const DeviceSums sums(gpu, {{0, 1}}, 1, Dtype::kFloat32, 100, random);
    Member member(gpu, board, ranks_on(gpu, board, {0, 1}), 0, 7);
    const DevicePointer result = gpu.allocate(400);
    std::thread agent([&] {
      EXPECT_TRUE(eventually([&] { return board.words[0].slice != 0; }));  // it waits for rank 1
      board.revoke(7);
    });
    const auto sum = [&] {
      return member.sum(sums.nodes, sums.pointers, 1, result, 400, Dtype::kFloat32);
    };
    const Status status = sum();
    agent.join();
    EXPECT_EQ(status.code(), base::Code::kRevoked);
    EXPECT_EQ(status.message(), "generation 7 is over");
    EXPECT_EQ(sum().message(), status.message());
  });
}

TEST(DeviceReducer, TheDeadlineNamesTheRankThatIsMissing) {
  in_process([] {
    const Gpu gpu;
    Board board{};
    std::mt19937_64 random(1);
    const DeviceSums sums(gpu, {{0, 1}}, 1, Dtype::kFloat32, 100, random);
    Member member(gpu, board, ranks_on(gpu, board, {5, 5}), 1, 7);
    const Status status = member.sum(sums.nodes, sums.pointers, 1, gpu.allocate(400), 400,
                                     Dtype::kFloat32, base::SystemClock().now());
    EXPECT_EQ(status.code(), base::Code::kDeadlineExceeded);
    EXPECT_EQ(status.message(),
              "sum of gradients: rank 0 of 2 has not summed its slice in generation 7");
  });
}

TEST(DeviceReducer, AnErrorOfTheDeviceEndsTheWait) {
  in_process(
      [] {
        const Gpu gpu;
        Board board{};
        std::mt19937_64 random(1);
        const DeviceSums sums(gpu, {{0, 1}}, 1, Dtype::kFloat32, 100, random);  // work 1
        Member member(gpu, board, ranks_on(gpu, board, {0, 1}), 0);
        const Status status = member.sum(sums.nodes, sums.pointers, 1, gpu.allocate(400), 400,
                                         Dtype::kFloat32);  // work 2
        EXPECT_EQ(status.code(), base::Code::kInternal);
        EXPECT_THAT(status.message(), ::testing::HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
        EXPECT_EQ(board.words[0].slice, 0U);
      },
      "", "at=2 illegal");
}

TEST(DeviceReducer, RefusesWhatItCannotAdd) {
  in_process([] {
    const Gpu gpu;
    Board board{};
    std::mt19937_64 random(1);
    const DeviceSums sums(gpu, {{0, 1}, {1, 2}}, 2, Dtype::kFloat32, 100, random);
    Member member(gpu, board, ranks_on(gpu, board, {0, 1}), 0);
    const DevicePointer result = gpu.allocate(4 * kSliceArea);
    const auto refusal = [&](std::vector<Interval> nodes, std::size_t offset, std::size_t bytes,
                             Dtype dtype) {
      const Status status = member.sum(nodes, sums.pointers, 2, result + offset, bytes, dtype);
      EXPECT_EQ(status.code(), base::Code::kInvalidArgument);
      return status.message();
    };
    EXPECT_EQ(refusal(sums.nodes, 0, 400, Dtype::kInt32),
              "sum of gradients: expected floats, got int32");
    EXPECT_THAT(refusal(sums.nodes, 4, 400, Dtype::kFloat32),
                ::testing::StartsWith("sum of gradients: expected memory at multiples of 16 bytes, "
                                      "got 0x"));
    EXPECT_EQ(refusal(sums.nodes, 0, 4 * kSliceArea, Dtype::kFloat32),
              "sum of gradients: a slice has 131072 bytes, the slice area of rank 0 65536");
    refusal({{0, 1}}, 0, 400, Dtype::kFloat32);
    refusal({{0, 2}, {0, 1}}, 0, 400, Dtype::kBfloat16);
  });
}

// A member is killed, and the next generation sums its leaf, which it had sealed.
class DeviceReducerProcesses : public ::testing::Test {
 protected:
  static constexpr std::size_t kBytes = 2 << 20;  // of a line: a leaf, then the slice area
  static constexpr std::size_t kSlice = 1 << 20;
  static constexpr std::size_t kGradient = 40'000;

  DeviceReducerProcesses()
      : board_(static_cast<Board*>(::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE,
                                          MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
    Process maker([](int socket) {
      const Gpu gpu;
      for (int i = 0; i < kMostRanks; ++i)
        fakes::cuda::send(socket, gpu.export_of(gpu.create(kBytes)));
      fakes::cuda::receive(socket);
    });
    for (base::Fd& line : lines_) line.reset(fakes::cuda::receive(maker.socket()));
  }
  ~DeviceReducerProcesses() override { ::munmap(board_, sizeof(Board)); }

  static Bytes leaf(int index) {
    return make_leaf(Dtype::kFloat32, kGradient / 4, std::uint64_t(index), true);
  }

  // A process with the line of `own`, which fills its leaf and then sums the leaves of all lines
  // among the slots of a generation.
  struct Life {
    explicit Life(const DeviceReducerProcesses& of, int own) : board(*of.board_) {
      for (int slot = 0; slot < kMostRanks; ++slot) {
        auto line = cuda::MappedLine::map(gpu.driver, of.lines_[slot].get(), kBytes, 0,
                                          slot == own ? cuda::MappedLine::Access::kReadWrite
                                                      : cuda::MappedLine::Access::kReadOnly,
                                          "line");
        EXPECT_TRUE(line.ok()) << line.status().message();
        lines.push_back(std::move(line).value());
      }
      upload(gpu, lines[std::size_t(own)].at(0), leaf(own));
    }

    [[nodiscard]] Status sum(const std::vector<int>& slots, int own, std::uint32_t generation,
                             Bytes& out) {
      std::vector<cuda::DeviceRank> ranks;
      int rank = 0;
      for (const int slot : slots) {
        if (slot == own) rank = int(ranks.size());
        ranks.push_back(
            {&board.words[slot], lines[std::size_t(slot)].at(kSlice), kSlice, slot % 3});
      }
      std::vector<const void*> pointers;
      for (const cuda::MappedLine& line : lines)
        pointers.push_back(reinterpret_cast<const void*>(line.at(0)));
      Member member(gpu, board, std::move(ranks), rank, generation, {}, own);
      const DevicePointer result = gpu.allocate(kGradient);
      const Status status = member.sum(single_leaves(kMostRanks), pointers, kMostRanks, result,
                                       kGradient, Dtype::kFloat32);
      if (status.ok()) out = download(gpu, result, kGradient);
      return status;
    }

    Gpu gpu;
    Board& board;
    std::vector<cuda::MappedLine> lines;
  };

  static Bytes expected() {
    std::vector<Bytes> leaves;
    std::vector<const std::byte*> inputs;
    for (int i = 0; i < kMostRanks; ++i) leaves.push_back(leaf(i));
    for (const Bytes& one : leaves) inputs.push_back(one.data());
    Bytes out(kGradient);
    reduce::TreeFold::compile(single_leaves(kMostRanks), kMostRanks)
        ->run(inputs, {0, kGradient}, out.data(), Dtype::kFloat32, Op::kSum,
              reduce::Stores::kPlain);
    return out;
  }

  Board* board_;
  base::Fd lines_[kMostRanks];
};

TEST_F(DeviceReducerProcesses, SurvivorsSumTheLeafOfADeadMember) {
  constexpr int kVictim = 2;
  std::vector<std::unique_ptr<Process>> processes;
  for (int own = 0; own < kMostRanks; ++own) {
    processes.push_back(std::make_unique<Process>([&, own](int socket) {
      Life life(*this, own);
      board_->ready += 1;  // the seal of its leaf
      if (!eventually([&] { return board_->ready == kMostRanks; })) std::exit(2);
      Bytes sum;
      if (own == kVictim) fakes::cuda::receive(socket);  // until it is killed
      const Status first = life.sum({0, 1, 2, 3, 4}, own, 1, sum);
      EXPECT_EQ(first.code(), base::Code::kRevoked) << first.message();
      const Status second = life.sum({0, 1, 3, 4}, own, 2, sum);
      EXPECT_TRUE(second.ok()) << second.message();
      EXPECT_EQ(sum, expected());
    }));
  }
  ASSERT_TRUE(eventually([&] { return board_->ready == kMostRanks; }));
  // The others wait for the victim, or will.
  processes[kVictim]->kill();
  EXPECT_NE(processes[kVictim]->wait(), 0);
  board_->revoke(1);
  processes[kVictim] = nullptr;
  for (const auto& process : processes) EXPECT_TRUE(process == nullptr || process->wait() == 0);
}

// What a missing wait does to sums, as ThreadSanitizer sees it.
#ifdef __SANITIZE_THREAD__
constexpr int kExitOfRace = 66;

// `early`: the driver says that work is done when it may not be.
void sum_twice(bool early) {
  Gpu gpu;
  cuda::Driver driver = gpu.driver;
  if (early) driver.event_query = [](cuda::DriverEvent) { return cuda::DriverResult::kSuccess; };
  Board board{};
  std::mt19937_64 random(1);
  const DeviceSums sums(gpu, {{0, 1}, {1, 2}, {2, 3}}, 3, Dtype::kFloat32, 3000, random);
  const auto ranks = ranks_on(gpu, board, {0, 1, 2});
  run_all(Ranks::kThreads, 3, [&](int rank) {
    Member member(gpu, board, ranks, rank, 1, driver);
    const DevicePointer result = gpu.allocate(12'000);
    for (int i = 0; i < 2; ++i)
      EXPECT_TRUE(member.sum(sums.nodes, sums.pointers, 3, result, 12'000, Dtype::kFloat32).ok());
    EXPECT_EQ(gpu->stream_synchronize(gpu.stream), kSuccess);
  });
}

TEST(DeviceReducer, AWordBeforeItsEventIsARace) {
  for (const bool early : {false, true}) {
    Process process([&](int) { sum_twice(early); });
    EXPECT_EQ(process.wait(), early ? kExitOfRace << 8 : 0);
  }
}

// The caller's stream reads the sum while the next one is made.
void read_and_sum(bool told) {
  const Gpu gpu;
  Board board{};
  std::mt19937_64 random(1);
  const DeviceSums sums(gpu, {{0, 1}}, 1, Dtype::kFloat32, 100, random);
  Member member(gpu, board, ranks_on(gpu, board, {0}), 0);
  const DevicePointer result = gpu.allocate(400), copy = gpu.allocate(400);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(member.sum(sums.nodes, sums.pointers, 1, result, 400, Dtype::kFloat32).ok());
    EXPECT_EQ(gpu->copy_on_device(copy, result, 400, gpu.stream), kSuccess);
    const Status status = told ? member.reducer().write_result_after(gpu.stream) : Status();
    EXPECT_TRUE(status.ok()) << status.message();
  }
  EXPECT_EQ(gpu->stream_synchronize(gpu.stream), kSuccess);
}

TEST(DeviceReducer, ASumThatIsStillReadIsARace) {
  for (const bool told : {true, false}) {
    Process process([&](int) { read_and_sum(told); });
    EXPECT_EQ(process.wait(), told ? 0 : kExitOfRace << 8);
  }
}
#endif

}  // namespace
}  // namespace regroup::collective::testing::device_reducer
