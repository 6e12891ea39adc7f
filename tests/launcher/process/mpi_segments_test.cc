// Which files of /dev/shm are segments of a job's ranks, and which of them are removed.
#include "launcher/process/mpi_segments.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/fd.h"

namespace regroup::process {
namespace {

// As Open MPI 4.1.4 and 5.0.11 have named them, of jobs with these numbers.
TEST(MpiSegments, HaveTheNamesOfOpenMpi) {
  EXPECT_TRUE(is_mpi_segment_of("vader_segment.vm.0.285701e3.1", "e44e837f", "vm", 0));
  EXPECT_TRUE(is_mpi_segment_of("sm_segment.vm.0.e3a60000.0", "7fb06552", "vm", 0));
}

TEST(MpiSegments, OfOthersAreNoneOfTheJob) {
  for (const char* const name :
       {"vader_segment.vm.0.285701e3.", "vader_segment.vm.0.285701e3.1.2",
        "vader_segment.vm.0.285701e3.x", "vader_segment.vm.0.285701e4.1",
        "vader_segment.vm.1.285701e3.1", "vader_segment.vm2.0.285701e3.1",
        "sm_segment.vm.0.285701e3.1", "other.vm.0.285701e3.1", "vader_segment", ""})
    EXPECT_FALSE(is_mpi_segment_of(name, "e44e837f", "vm", 0)) << name;
  EXPECT_FALSE(is_mpi_segment_of("vader_segment.vm.0.285701e3.1", "7fb06552", "vm", 0));
}

class RemovedSegments : public testing::Test {
 protected:
  RemovedSegments() {
    char name[] = "/tmp/regroup-segments-XXXXXX";
    folder_ = ::mkdtemp(name);
    EXPECT_EQ(::uname(&machine_), 0);
  }
  ~RemovedSegments() override { std::filesystem::remove_all(folder_); }
  // A segment of job e44e837f; returns its name.
  [[nodiscard]] std::string make(int rank) const {
    const std::string name =
        fmt::format("vader_segment.{}.{}.285701e3.{}", machine_.nodename, ::geteuid(), rank);
    std::ofstream(folder_ + "/" + name) << "segment";
    return name;
  }
  [[nodiscard]] std::vector<std::string> remove(timespec since = {}) const {
    return remove_mpi_segments("e44e837f", since, folder_);
  }

  std::string folder_;
  utsname machine_{};
};

TEST_F(RemovedSegments, AreThoseThatNoProcessUses) {
  const std::string mapped = make(0);
  const std::string opened = make(1);
  const std::string left = make(2);
  std::ofstream(folder_ + "/vader_segment.vm.0.12345678.0") << "of another job";
  base::Fd first(::open((folder_ + "/" + mapped).c_str(), O_RDWR | O_CLOEXEC));
  void* const at = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, first.get(), 0);
  ASSERT_NE(at, MAP_FAILED);
  first.reset();
  base::Fd second(::open((folder_ + "/" + opened).c_str(), O_RDWR | O_CLOEXEC));
  EXPECT_EQ(remove(), std::vector{left});
  ::munmap(at, 4096);
  EXPECT_EQ(remove(), std::vector{mapped});
  second.reset();
  EXPECT_EQ(remove(), std::vector{opened});
  EXPECT_FALSE(std::filesystem::is_empty(folder_)) << "the other job's stays";
}

TEST_F(RemovedSegments, AreNotOlderThanTheJob) {
  const std::string name = make(0);
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  EXPECT_TRUE(remove({.tv_sec = now.tv_sec + 10, .tv_nsec = 0}).empty());
  EXPECT_EQ(remove({.tv_sec = now.tv_sec - 10, .tv_nsec = 0}), std::vector{name});
}

}  // namespace
}  // namespace regroup::process
