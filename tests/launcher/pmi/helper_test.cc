// Which libpmix serves a job.
#include "launcher/pmi/helper.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace regroup::pmi {
namespace {

namespace fs = std::filesystem;

struct FindPmix : testing::Test {
  fs::path root = fs::path(testing::TempDir()) / ("find_pmix-" + std::to_string(::getpid()));
  FindPmix() {
    fs::remove_all(root);
    for (const char* prefix : {"a", "b", "c"}) fs::create_directories(root / prefix / "bin");
    fs::create_directories(root / "a/lib/openmpi");
    fs::create_directories(root / "b/lib");
    for (const char* file : {"a/lib/openmpi/libpmix.so.2", "b/lib/libpmix.so.2", "b/bin/mpirun"})
      std::ofstream(root / file).flush();
    fs::permissions(root / "b/bin/mpirun", fs::perms::owner_all);
  }
  ~FindPmix() override { fs::remove_all(root); }

  std::string found(const std::string& program, const std::string& path) const {
    process::App app;
    app.path = program;
    app.environment["PATH"] = path;
    return find_pmix(app);
  }
};

TEST_F(FindPmix, BesideTheProgramThenBesideMpirunThenTheSystems) {
  const std::string mpirun = root / "b/bin";
  EXPECT_EQ(found(root / "a/bin/python", mpirun), root / "a/lib/openmpi/libpmix.so.2");
  EXPECT_EQ(found(root / "c/bin/solver", mpirun), root / "b/lib/libpmix.so.2");
  EXPECT_EQ(found("./solver", mpirun), root / "b/lib/libpmix.so.2");
  EXPECT_EQ(found(root / "c/bin/solver", root / "c/bin"), "libpmix.so.2");
  EXPECT_EQ(found("/usr/bin/true", "/usr/bin"), "libpmix.so.2");
}

}  // namespace
}  // namespace regroup::pmi
