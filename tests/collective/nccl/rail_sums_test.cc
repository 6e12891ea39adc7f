// Plane nccl in the conformance suite, over the fake driver and the fake NCCL: sums of device
// buffers on one to three hosts with one or two rails, of floats of 16 bits, too. All else of a
// communicator is that of shm here.
#include "collective/nccl/rail_sums.h"

#include <array>
#include <atomic>
#include <utility>

#include "collective/cuda/device_reducer.h"
#include "collective/nccl/rails.h"
#include "tests/collective/conformance.h"
#include "tests/collective/cuda/device_sums.h"
#include "tests/collective/shm/job.h"

namespace regroup::collective::testing {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Conformance);

namespace rail_sums {
namespace {

using cuda::DevicePointer;
using cuda::DeviceReducer;
using nccl::Comm;
using nccl::RailSums;

constexpr int kMostRanks = 6;
constexpr std::size_t kMostBytes = 16 << 10;  // of a sum
constexpr std::size_t kMemory = 2 << 20;      // of its partials and its result

struct Shape {
  int ranks_of_a_host;  // but for the last host
  int gpus_of_a_host;
};
Shape shape_of(int ranks) {
  if (ranks <= 3) return {1, 1};
  return {ranks == 5 ? 3 : 2, 2};
}

std::atomic<int> allocations = 0;
cuda::DriverResult (*allocate_memory)(DevicePointer*, std::size_t) = nullptr;
cuda::DriverResult count_allocation(DevicePointer* at, std::size_t bytes) {
  allocations += 1;
  return allocate_memory(at, bytes);
}

// A rank's memory and threads, and how it takes part in a generation.
struct Rank {
  cuda::ReduceWords words{};
  shmem::Doorbell<shmem::RealPolicy> bell{};
  DevicePointer slice = 0;
  DevicePointer memory = 0;  // of the sum that is made: to free memory waits for work of all ranks
  std::size_t used = 0;
  std::unique_ptr<cuda::Watcher> watcher;
  std::unique_ptr<cuda::DeviceKernels> kernels;
  std::unique_ptr<cuda::DeviceScratch> scratch;
  std::unique_ptr<nccl::RailScratch> rail_scratch;
  std::unique_ptr<RailSums> sums;
  std::unique_ptr<DeviceReducer> reducer;
};

// Ranks are threads.
class RailJob final : public TestJob {
 public:
  explicit RailJob(int ranks) : shm_(make_shm_job(ranks)), size_(ranks), shape_(shape_of(ranks)) {
    library_ = nccl::load_nccl({std::string(FAKE_NCCL) + "/2.28.9/libnccl.so.2"}).value();
    world_ = make_job_world(1, ranks);
    std::vector<std::string> gpus;
    for (int rank = 0; rank < ranks; ++rank) {
      ranks_.at(std::size_t(rank)).slice = gpu_.allocate(kMostBytes);
      ranks_.at(std::size_t(rank)).memory = gpu_.allocate(kMemory);
      world_.members[std::size_t(rank)].slot_id.node = host_of(rank);
      gpus.push_back(std::to_string(gpu_of(rank)));
    }
    rails_ = nccl::rails_of(world_, gpus);
    ids_.resize(rails_.ranks.size());
    for (nccl::UniqueId& id : ids_) EXPECT_EQ(library_.get_unique_id(&id), nccl::Result::kSuccess);
    allocate_memory = gpu_->memory_allocate;
    counting_ = gpu_.driver;
    counting_.memory_allocate = count_allocation;
  }

  // So that no thread of NCCL is left.
  ~RailJob() override {
    for (Rank& one : ranks_) {
      const base::Status closed = one.sums ? one.sums->close() : base::Status();
      EXPECT_EQ(closed.to_string(), "ok");
    }
  }

  base::Result<std::unique_ptr<Communicator>> open(const proto::World& world, int rank) override {
    Rank& own = ranks_.at(std::size_t(rank));
    EXPECT_EQ(gpu_->context_set(gpu_.context), fakes::cuda::kSuccess);
    REGROUP_ASSIGN_OR_RETURN(auto kernels, cuda::DeviceKernels::load(gpu_.driver, kAnyImage));
    own.kernels = std::make_unique<cuda::DeviceKernels>(std::move(kernels));
    REGROUP_ASSIGN_OR_RETURN(own.watcher, cuda::Watcher::start(gpu_.driver, [this] {
                               for (Rank& one : ranks_) shmem::ring(one.bell);
                             }));
    own.scratch = std::make_unique<cuda::DeviceScratch>(counting_);
    own.rail_scratch = std::make_unique<nccl::RailScratch>(counting_);
    REGROUP_ASSIGN_OR_RETURN(auto comm, connect(rank));
    own.sums = std::make_unique<RailSums>(
        *own.kernels, *own.rail_scratch, static_cast<int>(rails_.ranks.size()),
        static_cast<int>(host_of(rank)), rails_.hosts(), std::move(comm));
    cuda::DeviceReducerSpec spec{.generation = world.generation,
                                 .stream = gpu_.new_stream(),
                                 .bell = &own.bell,
                                 .check = [] { return base::Status(); },
                                 .hosts = own.sums.get()};
    for (int r = 0; r < size_; ++r) {
      if (host_of(r) != host_of(rank)) continue;
      if (r == rank) spec.rank = static_cast<int>(spec.ranks.size());
      Rank& one = ranks_.at(std::size_t(r));
      spec.ranks.push_back({&one.words, one.slice, kMostBytes, gpu_of(r)});
    }
    own.reducer = std::make_unique<DeviceReducer>(gpu_.driver, *own.kernels, *own.watcher,
                                                  *own.scratch, std::move(spec));
    return shm_->open(world, rank);
  }
  void leave(proto::Generation g, int rank) override { shm_->leave(g, rank); }
  void revoke(proto::Generation g) override { shm_->revoke(g); }
  void bury(int rank) override { shm_->bury(rank); }
  void replace(int rank) override { shm_->replace(rank); }
  std::unique_ptr<TestJob> in_child() override { return nullptr; }

  TreeReducer& reducer(Communicator& /*opened*/, int rank) override {
    return *ranks_.at(std::size_t(rank)).reducer;
  }
  [[nodiscard]] std::span<const Dtype> summed() const override { return kFloats; }
  void set_holders(const std::vector<proto::NodeId>& of_leaves, int rank) override {
    std::vector<int> hosts(of_leaves.begin(), of_leaves.end());
    ranks_.at(std::size_t(rank)).sums->set_owners(std::move(hosts));
  }
  Output result(Output shared, int rank) override {
    Rank& own = ranks_.at(std::size_t(rank));
    own.used = 0;
    return {allocate(own, shared.size()), shared.size()};
  }
  std::span<const std::byte> partial(std::span<const std::byte> values, int rank) override {
    Rank& own = ranks_.at(std::size_t(rank));
    const std::byte* const at = allocate(own, values.size());
    upload(gpu_, reinterpret_cast<DevicePointer>(at), values);
    return {at, values.size()};
  }
  Bytes read(Output result, int /*rank*/) override {
    return download(gpu_, reinterpret_cast<DevicePointer>(result.data()), result.size());
  }
  [[nodiscard]] proto::NodeId host_of(int rank) const override {
    return static_cast<proto::NodeId>(rank / shape_.ranks_of_a_host);
  }

  // Reserves what the rank's next sum takes.
  [[nodiscard]] base::Status reserve(std::size_t bytes, Dtype dtype, int rank) {
    const auto rail = rails_.rail_of(rank);
    return rail ? ranks_.at(std::size_t(rank)).sums->reserve(bytes, *rail, dtype) : base::Status();
  }

 private:
  [[nodiscard]] int gpu_of(int rank) const {
    return rank % shape_.ranks_of_a_host % shape_.gpus_of_a_host;
  }
  base::Result<std::unique_ptr<Comm>> connect(int rank) {
    const auto rail = rails_.rail_of(rank);
    if (!rail) return std::unique_ptr<Comm>();
    nccl::CommSpec spec{.library = library_,
                        .driver = gpu_.driver,
                        .context = gpu_.context,
                        .rank = static_cast<int>(host_of(rank)),
                        .size = rails_.hosts(),
                        .id = ids_[std::size_t(*rail)],
                        .connect_limit = std::chrono::seconds(60)};
    REGROUP_ASSIGN_OR_RETURN(
        spec.bytes,
        ranks_.at(std::size_t(rank)).rail_scratch->bytes.reserve(std::size_t(rails_.hosts()) + 1));
    auto comm = std::make_unique<Comm>(std::move(spec));
    if (!eventually([&] { return comm->phase() != Comm::Phase::kConnecting; }) ||
        comm->phase() == Comm::Phase::kFailed)
      return base::internal_error("not connected: " + comm->failure());
    return comm;
  }
  std::byte* allocate(Rank& own, std::size_t bytes) {
    std::byte* const at = reinterpret_cast<std::byte*>(own.memory + own.used);
    own.used += (bytes + 255) / 256 * 256;
    EXPECT_LE(own.used, kMemory);
    return at;
  }

  const fakes::cuda::Gpu gpu_;
  cuda::Driver counting_;
  nccl::Library library_;
  const std::unique_ptr<TestJob> shm_;
  const int size_;
  const Shape shape_;
  proto::World world_;
  nccl::Rails rails_;
  std::vector<nccl::UniqueId> ids_;
  std::array<Rank, kMostRanks> ranks_;
};

constexpr Backend kNccl{"Nccl", /*processes=*/false, [](int ranks) -> std::unique_ptr<TestJob> {
                          return std::make_unique<RailJob>(ranks);
                        }};
// 2 and 3: as many hosts; 4: two hosts, 5: two hosts, of which one GPU has two ranks, 6: three
// hosts, each with two GPUs.
INSTANTIATE_TEST_SUITE_P(Nccl, Sums,
                         ::testing::Values(Setting{kNccl, 2}, Setting{kNccl, 3}, Setting{kNccl, 4},
                                           Setting{kNccl, 5}, Setting{kNccl, 6}),
                         name_of_setting);

// 700 leaves take partial sums of the plan's own, on a host and over the hosts.
TEST(RailSums, ASumTakesNoMemoryButWhatWasReserved) {
  constexpr std::uint32_t kLeaves = 700;
  for (const Dtype dtype : kFloats) {
    RailJob job(2);
    std::vector<Bytes> leaves;
    for (std::uint32_t leaf = 0; leaf < kLeaves; ++leaf)
      leaves.push_back(make_leaf(dtype, 40, leaf, true));
    std::vector<proto::NodeId> holders(kLeaves);
    for (std::uint32_t leaf = 0; leaf < kLeaves; ++leaf) holders[leaf] = leaf < 300 ? 0 : leaf % 2;
    std::atomic<int> reserved = 0;
    run_all(Ranks::kThreads, 2, [&](int rank) {
      auto opened = job.open(make_job_world(1, 2), rank);
      ASSERT_TRUE(opened.ok()) << opened.status().to_string();
      job.set_holders(holders, rank);
      Bytes shared(leaves[0].size());
      const Output result = job.result(shared, rank);
      std::vector<Partial> mine;
      for (std::uint32_t leaf = 0; leaf < kLeaves; ++leaf)
        if (holders[leaf] == job.host_of(rank))
          mine.push_back({{leaf, leaf + 1}, job.partial(leaves[leaf], rank)});
      ASSERT_EQ(job.reserve(leaves[0].size(), dtype, rank).to_string(), "ok");
      reserved += 1;
      ASSERT_TRUE(eventually([&] { return reserved == 2; }));
      const int before = allocations;
      const auto sum = job.reducer(**opened, rank).reduce(mine, kLeaves, result, dtype, soon());
      ASSERT_EQ(sum.to_string(), "ok");
      EXPECT_EQ(allocations, before) << name_of(dtype);
      EXPECT_EQ(job.read(result, rank), reference_sum(dtype, leaves, {0, kLeaves}));
      ASSERT_TRUE((*opened)->barrier(soon()).ok());
    });
  }
}

}  // namespace
}  // namespace rail_sums
}  // namespace regroup::collective::testing
