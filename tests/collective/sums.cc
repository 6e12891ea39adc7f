// What every backend promises of partial sums: the bits of the canonical tree, whatever the cover,
// whichever host holds which part of it, and with any number of ranks from 1 to 9.
#include <sys/mman.h>

#include <algorithm>
#include <set>

#include "collective/tree_reducer.h"
#include "tests/collective/conformance.h"
#include "tests/collective/covers.h"

namespace regroup::collective::testing {
namespace {

// Results that the members of a host share, in memory of all processes.
class SharedResults {
 public:
  static constexpr std::size_t kMost = 1 << 14;  // bytes of one

  explicit SharedResults(std::size_t hosts) : bytes_(hosts * kMost) {
    memory_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory_, MAP_FAILED);
  }
  ~SharedResults() { ::munmap(memory_, bytes_); }
  SharedResults(const SharedResults&) = delete;
  SharedResults& operator=(const SharedResults&) = delete;

  [[nodiscard]] Output of(std::size_t host, std::size_t bytes) const {
    return {static_cast<std::byte*>(memory_) + host * kMost, bytes};
  }

 private:
  const std::size_t bytes_;
  void* memory_;
};

// For every cover and every holder: the bits of the tree, on each host.
TEST_P(Sums, OfSealedPartsHaveTheSameBitsForEveryCover) {
  std::set<proto::NodeId> all;
  for (int rank = 0; rank < ranks(); ++rank) all.insert(job_->host_of(rank));
  const std::vector<proto::NodeId> hosts(all.begin(), all.end());
  const SharedResults results(hosts.size());
  run([&](TestJob& job, int rank) {
    auto comm = job.open(make_job_world(1, ranks()), rank);
    ASSERT_TRUE(comm.ok()) << comm.status().to_string();
    const auto host =
        static_cast<std::size_t>(std::ranges::find(hosts, job.host_of(rank)) - hosts.begin());
    std::mt19937_64 random(static_cast<std::uint64_t>(rank));
    std::mt19937_64 common(static_cast<std::uint64_t>(ranks()));
    for (std::uint32_t count = 1; count <= 64; ++count) {
      if (!is_sampled(count)) continue;
      const Dtype dtype =
          job.summed()[(count + static_cast<std::uint32_t>(ranks())) % job.summed().size()];
      const std::size_t elements = 1 + common() % (count % 8 == 0 ? 2000 : 40);
      std::vector<Bytes> leaves;
      for (std::uint32_t i = 0; i < count; ++i)
        leaves.push_back(make_leaf(dtype, elements, count * 100 + i, true));
      const std::vector<Sealed> parts = seal(dtype, leaves, common);
      const Output result = job.result(results.of(host, leaves[0].size()), rank);
      std::vector<Partial> mine;
      std::vector<proto::NodeId> holders(count);
      for (const Sealed& part : parts) {
        const std::size_t holder = common() % hosts.size();
        std::fill(holders.begin() + part.leaves.begin, holders.begin() + part.leaves.end,
                  hosts[holder]);
        if (holder == host) mine.push_back({part.leaves, job.partial(part.sum, rank)});
      }
      job.set_holders(holders, rank);
      dawdle(random);
      const auto status = job.reducer(**comm, rank).reduce(mine, count, result, dtype, soon());
      ASSERT_EQ(status.to_string(), "ok");
      const Bytes want = reference_sum(dtype, leaves, {0, count});
      ASSERT_EQ(job.read(result, rank), want) << count << " leaves of " << name_of(dtype);
      ASSERT_TRUE((*comm)->barrier(soon()).ok());  // before the result is written again
    }
  });
}

}  // namespace
}  // namespace regroup::collective::testing
