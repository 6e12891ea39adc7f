// A file of another job must never be removed: its ranks may run in another PID namespace, where
// nobody here sees that they map it. So its name must be one that a rank of this very job gives.
#include "launcher/process/mpi_segments.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

namespace regroup::process {
namespace {

namespace fs = std::filesystem;
using FileId = std::pair<dev_t, ino_t>;

// MPI_COMM_WORLDs of a job that are recognised. Few, since Open MPI 5 shortens the hash to 16 bits.
constexpr int kSpaces = 32;

// Jenkins's one-at-a-time hash, as Open MPI's OPAL_HASH_STR.
std::uint32_t hash_of(std::string_view text) {
  std::uint32_t hash = 0;
  for (const char c : text) {
    hash += static_cast<unsigned char>(c);
    hash += hash << 10;
    hash ^= hash >> 6;
  }
  hash += hash << 3;
  hash ^= hash >> 11;
  return hash + (hash << 15);
}

bool is_number(std::string_view text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c) != 0; });
}

std::optional<FileId> id_of(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return {};
  return FileId{facts.st_dev, facts.st_ino};
}

// Takes the files that the process has open or maps out of `files`. What may not be looked into,
// a process of another user for example, is no rank.
void spare_those_of(const std::string& process, std::set<FileId>& files) {
  std::error_code error;
  for (fs::directory_iterator at(process + "/fd", error); !error && at != fs::directory_iterator();
       at.increment(error)) {
    if (const auto id = id_of(at->path().string())) files.erase(*id);
  }
  std::ifstream maps(process + "/maps");  // not map_files, whose links only root may follow
  for (std::string line; std::getline(maps, line);) {
    unsigned first = 0;
    unsigned second = 0;
    unsigned long inode = 0;
    if (std::sscanf(line.c_str(), "%*s %*s %*s %x:%x %lu", &first, &second, &inode) == 3)
      files.erase({::gnu_dev_makedev(first, second), inode});
  }
}

// Those of `files` that no process uses; none if the processes cannot be listed.
std::set<FileId> unused(std::set<FileId> files) {
  std::error_code error;
  for (fs::directory_iterator at("/proc", error); !error && at != fs::directory_iterator();
       at.increment(error)) {
    if (is_number(at->path().filename().string())) spare_those_of(at->path().string(), files);
  }
  return error ? std::set<FileId>() : files;
}

bool is_older(timespec one, timespec other) {
  return std::pair(one.tv_sec, one.tv_nsec) < std::pair(other.tv_sec, other.tv_nsec);
}

}  // namespace

bool is_mpi_segment_of(std::string_view name, const std::string& job, const std::string& host,
                       uid_t user) {
  const bool five = name.starts_with("sm_segment.");
  if (!five && !name.starts_with("vader_segment.")) return false;  // most files of the folder
  for (int space = 0; space < kSpaces; ++space) {
    const std::uint32_t hash = hash_of(fmt::format("regroup-{}.{}", job, space));
    const std::uint32_t id = five ? ((hash >> 16) ^ (hash & 0xffffU)) << 16 : hash & ~0x8000U;
    const std::string begin =
        fmt::format("{}.{}.{}.{:x}.", five ? "sm_segment" : "vader_segment", host, user, id);
    if (name.starts_with(begin)) return is_number(name.substr(begin.size()));
  }
  return false;
}

std::vector<std::string> remove_mpi_segments(const std::string& job, timespec since,
                                             const std::string& folder) {
  utsname machine{};
  if (::uname(&machine) != 0) return {};
  std::set<FileId> found;
  std::vector<std::pair<std::string, FileId>> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error); !error && at != fs::directory_iterator();
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (!is_mpi_segment_of(name, job, machine.nodename, ::geteuid())) continue;
    struct stat facts {};
    if (::lstat(at->path().c_str(), &facts) != 0 || !S_ISREG(facts.st_mode) ||
        facts.st_uid != ::geteuid() || is_older(facts.st_ctim, since))
      continue;
    found.emplace(facts.st_dev, facts.st_ino);
    names.emplace_back(name, FileId{facts.st_dev, facts.st_ino});
  }
  std::vector<std::string> removed;
  if (found.empty()) return removed;
  found = unused(std::move(found));
  for (const auto& [name, id] : names) {
    if (found.contains(id) && ::unlink((folder + "/" + name).c_str()) == 0) removed.push_back(name);
  }
  return removed;
}

}  // namespace regroup::process
