// A GPU is one job's, until that job's process is gone.
#include "launcher/process/gpu_claims.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace regroup::process {
namespace {

using testing::HasSubstr;

class GpuClaimsTest : public testing::Test {
 protected:
  [[nodiscard]] ClaimScope of(const std::string& job, const std::string& outer = "") const {
    return {name_, job, outer};
  }
  const std::string name_ = fmt::format("test {}", ::getpid());  // nobody else's
};

// A process beside this one that holds `gpu` for `job` until told to end.
class Holder {
 public:
  Holder(const ClaimScope& scope, const std::string& gpu) {
    std::array<int, 2> pipe{};
    EXPECT_EQ(::pipe(pipe.data()), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      GpuClaims claims;
      const char done = claims.claim(scope, gpu).ok() ? 'y' : 'n';
      if (::write(pipe[1], &done, 1) == 1) ::pause();
      ::_exit(0);
    }
    ::close(pipe[1]);  // or the end of the child would not be read
    char done = 0;
    EXPECT_EQ(::read(pipe[0], &done, 1), 1);
    EXPECT_EQ(done, 'y');
    ::close(pipe[0]);
  }
  ~Holder() { end(); }
  void end() {
    if (pid_ == 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
};

TEST_F(GpuClaimsTest, NamesTheJobThatHoldsAGpu) {
  EXPECT_EQ(ClaimedGpus(of("b")).owner("GPU-1"), nullptr);
  const Holder a(of("aaaa"), "GPU-1");
  const ClaimedGpus seen(of("b"));
  ASSERT_NE(seen.owner("GPU-1"), nullptr);
  EXPECT_EQ(seen.owner("GPU-1")->text(), fmt::format("job aaaa (process {})", a.pid()));
  EXPECT_EQ(seen.owner("GPU-2"), nullptr);
  GpuClaims claims;
  const base::Status refused = claims.claim(of("b"), "GPU-1");
  EXPECT_EQ(refused.code(), base::Code::kUnavailable);
  EXPECT_EQ(refused.message(),
            fmt::format("GPU GPU-1 has been taken by job aaaa (process {})", a.pid()));
  EXPECT_TRUE(claims.claim(of("b"), "GPU-2").ok());
  EXPECT_TRUE(claims.claim(of("b"), "GPU-2").ok());  // it has it
}

TEST_F(GpuClaimsTest, AKilledProcessReleasesItsGpu) {
  Holder a(of("aaaa"), "GPU-1");
  a.end();
  EXPECT_EQ(ClaimedGpus(of("b")).owner("GPU-1"), nullptr);
  GpuClaims claims;
  EXPECT_TRUE(claims.claim(of("b"), "GPU-1").ok());
}

TEST_F(GpuClaimsTest, AJobSharesItsGpuWithItself) {
  const Holder a(of("aaaa"), "GPU-1");
  EXPECT_EQ(ClaimedGpus(of("aaaa")).owner("GPU-1"), nullptr);
  GpuClaims claims;  // of another agent of the job
  EXPECT_TRUE(claims.claim(of("aaaa"), "GPU-1").ok());
}

TEST_F(GpuClaimsTest, NestedJobsShareTheirParentsGpusButNotWithEachOther) {
  const Holder a(of("aaaa"), "GPU-1");
  EXPECT_EQ(ClaimedGpus(of("in1", "aaaa")).owner("GPU-1"), nullptr);
  const Holder first(of("in1", "aaaa"), "GPU-1");
  const ClaimedGpus inside(of("in2", "aaaa")), outside(of("b"));
  ASSERT_NE(inside.owner("GPU-1"), nullptr);
  EXPECT_EQ(inside.owner("GPU-1")->job, "in1");
  GpuClaims claims;
  EXPECT_THAT(claims.claim(of("in2", "aaaa"), "GPU-1").message(), HasSubstr("taken by job in1"));
  ASSERT_NE(outside.owner("GPU-1"), nullptr);
  EXPECT_EQ(outside.owner("GPU-1")->job, "aaaa");
}

TEST_F(GpuClaimsTest, NamesTheNestedJobIfAJobAboveHoldsTheGpu) {
  GpuClaims claims;
  ASSERT_TRUE(claims.claim(of("aaaa"), "GPU-1").ok());
  const Holder inside(of("in1"), "GPU-1");  // a child of this process
  const ClaimedGpus seen(of("b"));          // of this process, which has it for aaaa
  ASSERT_NE(seen.owner("GPU-1"), nullptr);
  EXPECT_EQ(seen.owner("GPU-1")->job, "in1");
}

// A container counts its processes from 1; its network may be this host's.
TEST_F(GpuClaimsTest, IgnoresAProcessOfAnotherContainer) {
  std::string root = std::filesystem::temp_directory_path() / "regroup-claims-XXXXXX";
  ASSERT_NE(::mkdtemp(root.data()), nullptr);
  std::filesystem::create_directories(root + "/proc/net");
  std::filesystem::create_directories(root + "/proc/self/ns");
  std::ofstream(root + "/proc/self/ns/pid") << "";
  struct stat found {};
  ASSERT_EQ(::stat((root + "/proc/self/ns/pid").c_str(), &found), 0);
  {
    GpuClaims claims;  // for the name of a claim, whatever it looks like
    ASSERT_TRUE(claims.claim(of("aaaa"), "GPU-1").ok());
    std::ifstream all("/proc/net/unix");
    std::string name;
    for (std::string line; std::getline(all, line);) {
      const std::size_t at = line.find("@regroup-gpu-");
      const std::size_t equals = line.find(fmt::format("/GPU-1=aaaa.{}.", ::getpid()));
      if (at != std::string::npos && equals != std::string::npos)
        name = line.substr(at, equals - at);
    }
    ASSERT_FALSE(name.empty());
    const auto claimed_in = [&](const std::string& owner) {
      std::ofstream(root + "/proc/net/unix")
          << fmt::format("0: 2 0 0 1 1 9 {0}/GPU-1\n0: 2 0 0 1 1 9 {0}/GPU-1={1}\n", name, owner);
      return ClaimedGpus(of("b"), root).owner("GPU-1") != nullptr;
    };
    const auto here = static_cast<std::uint64_t>(found.st_ino);
    // This process: free for what it runs.
    EXPECT_FALSE(claimed_in(fmt::format("aaaa.{}.{}", ::getpid(), here)));
    EXPECT_TRUE(claimed_in(fmt::format("aaaa.{}.{}", ::getpid(), here + 1)));
    EXPECT_TRUE(claimed_in(fmt::format("aaaa.{}", ::getpid())));
  }
  std::filesystem::remove_all(root);
}

TEST_F(GpuClaimsTest, ClaimsAllGpusOrNone) {
  const Holder a(of("aaaa"), "GPU-2");
  GpuClaims claims;
  ASSERT_TRUE(claims.claim(of("b"), "GPU-0").ok());
  EXPECT_THAT(claims.claim_all(of("b"), {"GPU-0", "GPU-1", "GPU-2"}).message(),
              HasSubstr("taken by job aaaa"));
  const auto has = [](const std::string& gpu) {
    std::ifstream file("/proc/net/unix");
    const std::string all{std::istreambuf_iterator<char>(file), {}};
    return all.find(fmt::format("/{}=b.{}.", gpu, ::getpid())) != std::string::npos;
  };
  EXPECT_TRUE(has("GPU-0"));  // it was there before
  EXPECT_FALSE(has("GPU-1"));
  EXPECT_TRUE(claims.claim_all(of("b"), {"GPU-0", "GPU-1"}).ok());
  EXPECT_TRUE(has("GPU-1"));
}

TEST_F(GpuClaimsTest, PrefersTheScopeOfTheController) {
  const spec::Environment own{{"REGROUP_GPU_CLAIMS", "mine"}, {"REGROUP_JOB", "outer1"}};
  EXPECT_EQ(claim_scope(own, "b").name, "mine");
  EXPECT_EQ(claim_scope(own, "b").outer, "outer1");
  const ClaimScope told = claim_scope(own, "b", {"theirs", "", "outer2"});
  EXPECT_EQ(told.name + told.job + told.outer, "theirsbouter2");
}

TEST_F(GpuClaimsTest, ScopesAreIndependentAndNoneClaimsNothing) {
  const Holder a(of("aaaa"), "GPU-1");
  EXPECT_EQ(ClaimedGpus({name_ + "x", "b", ""}).owner("GPU-1"), nullptr);
  GpuClaims one, other;
  EXPECT_TRUE(one.claim({"none", "b", ""}, "GPU-1").ok());
  EXPECT_TRUE(other.claim({"none", "c", ""}, "GPU-1").ok());
}

TEST_F(GpuClaimsTest, ReportsLongAndUnusualNames) {
  const std::string first(200, 'x'), second = std::string(199, 'x') + "y";
  const Holder a(of("aaaa"), first), odd(of("aaaa"), "0000:01:00.0 = ~ GPU");
  const ClaimedGpus seen(of("b"));
  EXPECT_NE(seen.owner(first), nullptr);
  EXPECT_EQ(seen.owner(second), nullptr);
  EXPECT_NE(seen.owner("0000:01:00.0 = ~ GPU"), nullptr);
}

}  // namespace
}  // namespace regroup::process
