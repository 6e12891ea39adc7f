// Which MPI is found in directories that look like installations.
#include "collective/mpi/library.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace regroup::collective::mpi {
namespace {

namespace fs = std::filesystem;

class MpiLibrary : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = fs::temp_directory_path() / "regroup-mpi-XXXXXX";
    root_ = ::mkdtemp(name.data());
  }
  void TearDown() override { fs::remove_all(root_); }
  // Creates a file that can be executed.
  fs::path add(const std::string& name) const {
    const fs::path path = root_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << "";
    fs::permissions(path, fs::perms::owner_all);
    return path;
  }
  [[nodiscard]] std::string at(const std::string& name) const { return root_ / name; }

  fs::path root_;
};

TEST_F(MpiLibrary, IsThatOfADirectoryOrTheFileItself) {
  const std::string open_mpi = add("a/lib/libmpi.so.40");
  const std::string mpich = add("b/lib64/libmpi.so.12");
  const std::string debian = add("c/lib/x86_64-linux-gnu/libmpich.so.12");
  EXPECT_EQ(*find_library(at("a"), ""), open_mpi);
  EXPECT_EQ(*find_library(at("b"), ""), mpich);
  EXPECT_EQ(*find_library(at("c"), ""), debian);
  EXPECT_EQ(*find_library(debian, ""), debian);
  EXPECT_EQ(find_library(at("none"), "").status().message(),
            "no libmpi.so.40 (Open MPI), libmpi_abi.so.1 or libmpi.so.12 (MPICH) in " + at("none"));
}

// Intel MPI has an own version of the library of MPICH's ABI.
TEST_F(MpiLibrary, IsThatOfTheStandardAbiWhereMpichHasBoth) {
  const std::string abi = add("a/lib/libmpi_abi.so.1");
  add("a/lib/libmpi.so.12");
  EXPECT_EQ(*find_library(at("a"), ""), abi);
}

TEST_F(MpiLibrary, IsThatOfTheFirstMpirunInPath) {
  const std::string open_mpi = add("a/lib/libmpi.so.40");
  add("a/bin/mpirun");
  const std::string mpich = add("b/lib/libmpi.so.12");
  add("b/bin/mpirun");
  EXPECT_EQ(*find_library("", at("none") + ":" + at("a/bin") + ":" + at("b/bin")), open_mpi);
  EXPECT_EQ(*find_library("", at("b/bin") + ":" + at("a/bin")), mpich);
  EXPECT_EQ(find_library("", at("none")).status().message(), "no mpirun in PATH");
}

// Debian installs several MPIs in one directory; mpirun is a link to the launcher of one.
TEST_F(MpiLibrary, OfSeveralInOneDirectoryIsThatOfMpirun) {
  const std::string open_mpi = add("lib/x86_64-linux-gnu/libmpi.so.40");
  const std::string mpich = add("lib/x86_64-linux-gnu/libmpich.so.12");
  const fs::path hydra = add("bin/mpiexec.hydra"), orte = add("bin/mpirun.openmpi");
  for (const auto& [launcher, library] : {std::pair(hydra, mpich), std::pair(orte, open_mpi)}) {
    fs::create_directories(root_ / "alternatives");
    fs::remove(root_ / "alternatives/mpirun");
    fs::create_symlink(launcher, root_ / "alternatives/mpirun");
    EXPECT_EQ(*find_library("", at("alternatives")), library);
  }
}

}  // namespace
}  // namespace regroup::collective::mpi
