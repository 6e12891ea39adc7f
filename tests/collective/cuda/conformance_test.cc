// Plane cuda in the conformance suite, over the fake driver: sums of device buffers, on two GPUs in
// turn. All else of a communicator is that of shm there, which has the whole suite.
#include <array>

#include "collective/cuda/device_reducer.h"
#include "tests/collective/conformance.h"
#include "tests/collective/cuda/device_sums.h"
#include "tests/collective/shm/job.h"

namespace regroup::collective::testing {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Conformance);

namespace device_conformance {
namespace {

using cuda::DevicePointer;
using cuda::DeviceReducer;

constexpr int kMostRanks = 5;
constexpr std::size_t kMostBytes = 16 << 10;  // of a sum

// Ranks are threads.
class DeviceJob final : public TestJob {
 public:
  explicit DeviceJob(int ranks) : shm_(make_shm_job(ranks)), size_(ranks) {
    for (int rank = 0; rank < ranks; ++rank)
      ranks_.at(std::size_t(rank)).slice = gpu_.allocate(kMostBytes);
  }

  base::Result<std::unique_ptr<Communicator>> open(const proto::World& world, int rank) override {
    Rank& own = ranks_.at(std::size_t(rank));
    EXPECT_EQ(gpu_->context_set(gpu_.context), fakes::cuda::kSuccess);
    REGROUP_ASSIGN_OR_RETURN(const auto kernels, cuda::DeviceKernels::load(gpu_.driver, kAnyImage));
    REGROUP_ASSIGN_OR_RETURN(own.watcher, cuda::Watcher::start(gpu_.driver, [this] {
                               for (Rank& one : ranks_) shmem::ring(one.bell);
                             }));
    own.scratch = std::make_unique<cuda::DeviceScratch>(gpu_.driver);
    cuda::DeviceReducerSpec spec{.rank = rank,
                                 .generation = world.generation,
                                 .stream = gpu_.new_stream(),
                                 .bell = &own.bell,
                                 .check = [] { return base::Status(); }};
    for (int r = 0; r < size_; ++r) {
      Rank& one = ranks_.at(std::size_t(r));
      spec.ranks.push_back({&one.words, one.slice, kMostBytes, r % 2});
    }
    own.reducer = std::make_unique<DeviceReducer>(gpu_.driver, kernels, *own.watcher, *own.scratch,
                                                  std::move(spec));
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
  Output result(Output shared, int rank) override {
    Rank& own = ranks_.at(std::size_t(rank));
    for (const DevicePointer at : std::exchange(own.memory, {}))
      EXPECT_EQ(gpu_->memory_free(at), fakes::cuda::kSuccess);
    return {allocate(own, shared.size()), shared.size()};
  }
  std::span<const std::byte> partial(std::span<const std::byte> values, int rank) override {
    Rank& own = ranks_.at(std::size_t(rank));
    const std::byte* const at = allocate(own, values.size());
    upload(gpu_, own.memory.back(), values);
    return {at, values.size()};
  }
  Bytes read(Output result, int /*rank*/) override {
    return download(gpu_, reinterpret_cast<DevicePointer>(result.data()), result.size());
  }

 private:
  struct Rank {
    cuda::ReduceWords words{};
    shmem::Doorbell<shmem::RealPolicy> bell{};
    DevicePointer slice = 0;
    std::vector<DevicePointer> memory;  // of the sum that is made
    std::unique_ptr<cuda::Watcher> watcher;
    std::unique_ptr<cuda::DeviceScratch> scratch;
    std::unique_ptr<DeviceReducer> reducer;
  };
  std::byte* allocate(Rank& own, std::size_t bytes) {
    own.memory.push_back(gpu_.allocate(bytes));
    return reinterpret_cast<std::byte*>(own.memory.back());
  }

  const fakes::cuda::Gpu gpu_;
  const std::unique_ptr<TestJob> shm_;
  const int size_;
  std::array<Rank, kMostRanks> ranks_;
};

constexpr Backend kCuda{"Cuda", /*processes=*/false, [](int ranks) -> std::unique_ptr<TestJob> {
                          return std::make_unique<DeviceJob>(ranks);
                        }};
// More threads than cores spend their time in waits for each other.
INSTANTIATE_TEST_SUITE_P(Cuda, Sums,
                         ::testing::Values(Setting{kCuda, 1}, Setting{kCuda, 2}, Setting{kCuda, 3},
                                           Setting{kCuda, 5}),
                         name_of_setting);

}  // namespace
}  // namespace device_conformance
}  // namespace regroup::collective::testing
