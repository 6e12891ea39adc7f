// Where MPIs are installed: PREFIX/lib, PREFIX/lib64, and Debian's PREFIX/lib/ARCHITECTURE, in
// which several MPIs may be.
#include "collective/mpi/library.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/status.h"

namespace regroup::collective::mpi {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 1> kOpenMpi{"libmpi.so.40"};
// By the standard's ABI first: Intel MPI has its own version of MPICH's. Open MPI may get it, too.
constexpr std::array<std::string_view, 3> kMpich{"libmpi_abi.so.1", "libmpi.so.12",
                                                 "libmpich.so.12"};
constexpr std::string_view kNames =
    "libmpi.so.40 (Open MPI), libmpi_abi.so.1 or libmpi.so.12 (MPICH)";

bool is_file(const fs::path& file) {
  std::error_code ignored;
  return fs::is_regular_file(file, ignored);
}

std::vector<fs::path> library_folders(const fs::path& prefix) {
  std::vector<fs::path> out{prefix / "lib", prefix / "lib64", prefix};
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(prefix / "lib", ignored)) {
    if (entry.path().filename().string().ends_with("-linux-gnu")) out.push_back(entry.path());
  }
  return out;
}

std::optional<std::string> library_in(const fs::path& prefix, bool mpich_first) {
  std::vector<std::string_view> names(kOpenMpi.begin(), kOpenMpi.end());
  names.insert(mpich_first ? names.begin() : names.end(), kMpich.begin(), kMpich.end());
  const std::vector<fs::path> folders = library_folders(prefix);
  for (const std::string_view name : names) {
    for (const fs::path& folder : folders) {
      if (is_file(folder / name)) return folder / name;
    }
  }
  return std::nullopt;
}

// Debian's mpirun is a symbolic link to mpirun.openmpi or mpiexec.hydra.
base::Result<std::string> library_of_mpirun(const std::string& path) {
  std::istringstream folders(path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path program = fs::path(folder) / "mpirun";
    if (folder.empty() || ::access(program.c_str(), X_OK) != 0) continue;
    std::error_code error;
    const fs::path real = fs::canonical(program, error);
    const std::string name = real.filename().string();
    const bool mpich = name.find("hydra") != std::string::npos || name.ends_with("mpich");
    for (const fs::path& file : {program, real}) {
      if (auto found = library_in(file.parent_path().parent_path(), mpich)) return *found;
    }
    return base::unavailable(fmt::format("no {} belongs to {}", kNames, program.string()));
  }
  return base::unavailable("no mpirun in PATH");
}

}  // namespace

base::Result<std::string> find_library(const std::string& place, const std::string& path) {
  if (place.empty()) return library_of_mpirun(path);
  if (is_file(place)) return place;
  if (auto found = library_in(place, false)) return *found;
  return base::unavailable(fmt::format("no {} in {}", kNames, place));
}

}  // namespace regroup::collective::mpi
