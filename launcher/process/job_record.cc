// flock() belongs to the open file description, which forked processes share: it is free when the
// last of them has died.
#include "launcher/process/job_record.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <filesystem>
#include <sstream>
#include <system_error>

#include "launcher/process/job_cgroup.h"
#include "launcher/process/mpi_segments.h"
#include "launcher/process/process_mark.h"

namespace regroup::process {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSuffix = ".job";
constexpr std::size_t kIdLength = 8;
constexpr off_t kMostBytes = 1 << 20;
constexpr int kAttempts = 20;  // while other processes test whether the job is dead

// Name of a job, or of its part on host N: "ID" or "ID-N".
bool is_id(const std::string& name) {
  const std::string id = launch_of(name);
  const std::string host = name.size() > id.size() ? name.substr(id.size() + 1) : "0";
  return id.size() == kIdLength && !host.empty() &&
         std::all_of(id.begin(), id.end(), [](unsigned char c) { return std::isxdigit(c) != 0; }) &&
         std::all_of(host.begin(), host.end(),
                     [](unsigned char c) { return std::isdigit(c) != 0; });
}

bool is_held(const std::string& path) {
  const base::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  return file.valid() && ::flock(file.get(), LOCK_SH | LOCK_NB) != 0;
}

std::string contents(int file) {
  std::string text;
  std::array<char, 4096> bytes{};
  while (static_cast<off_t>(text.size()) < kMostBytes) {
    const ssize_t count =
        ::pread(file, bytes.data(), bytes.size(), static_cast<off_t>(text.size()));
    if (count <= 0) break;
    text.append(bytes.data(), static_cast<std::size_t>(count));
  }
  return text;
}

// The boot id: after a reboot, or on another machine, the job's processes cannot be here.
std::string boot_id() {
  const base::Fd file(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  std::array<char, 64> bytes{};
  const ssize_t count = file.valid() ? ::read(file.get(), bytes.data(), bytes.size()) : 0;
  std::string id(bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  return id.substr(0, id.find('\n'));
}

// The locked file may have been unlinked meanwhile.
bool has_name(int file, const std::string& path) {
  struct stat opened {};
  struct stat named {};
  return ::fstat(file, &opened) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         S_ISREG(named.st_mode) && named.st_uid == ::geteuid() && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

base::Status append(int file, const std::string& text) {
  if (::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size())) return {};
  return base::system_error("write", "the job's record", errno);
}

// When the record was created; the begin of time if the file system does not know it.
timespec birth_of(int file) {
  struct statx facts {};
  if (::statx(file, "", AT_EMPTY_PATH, STATX_BTIME, &facts) != 0 ||
      (facts.stx_mask & STATX_BTIME) == 0)
    return {};
  return {.tv_sec = facts.stx_btime.tv_sec, .tv_nsec = facts.stx_btime.tv_nsec};
}

bool is_group_of(const std::string& folder, const std::string& job) {
  return fs::path(folder).filename() == "regroup-" + job;
}

}  // namespace

std::string launch_of(const std::string& job) { return job.substr(0, job.find('-')); }

base::Result<std::shared_ptr<JobRecord>> JobRecord::create(const std::string& folder,
                                                           const std::string& job) {
  const std::string path = fmt::format("{}/{}{}", folder, job, kSuffix);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    base::Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file.valid()) return base::system_error("open", path, errno);
    const bool locked = ::flock(file.get(), LOCK_EX | LOCK_NB) == 0;
    if (!locked && errno != EWOULDBLOCK) {
      const int error = errno;
      ::unlink(path.c_str());
      return base::system_error("flock", path, error);
    }
    if (!locked || !has_name(file.get(), path)) {
      ::poll(nullptr, 0, 1);
      continue;
    }
    const base::Status written =
        append(file.get(), fmt::format("regroup-job 1\nboot {}\n", boot_id()));
    if (!written.ok()) {
      ::unlink(path.c_str());
      return written;
    }
    return std::shared_ptr<JobRecord>(new JobRecord(std::move(file), folder, job));
  }
  return base::unavailable(path + ": held by another job");
}

std::shared_ptr<JobRecord> JobRecord::take_over(const std::string& path) {
  const fs::path name(path);
  if (name.extension() != kSuffix || !is_id(name.stem().string())) return nullptr;
  const std::string launch = launch_of(name.stem().string());
  const bool part = launch.size() < name.stem().string().size();
  if (part && is_held((name.parent_path() / (launch + kSuffix)).string())) return nullptr;
  base::Fd file(::open(path.c_str(), O_RDWR | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file.valid() || ::flock(file.get(), LOCK_EX | LOCK_NB) != 0 || !has_name(file.get(), path)) {
    return nullptr;
  }
  std::shared_ptr<JobRecord> record(
      new JobRecord(std::move(file), name.parent_path().string(), name.stem().string()));
  const std::vector<std::string> boots = record->lines_of("boot");
  return boots.size() == 1 && boots[0] == boot_id() ? record : nullptr;
}

base::Status JobRecord::add_cgroups(const std::vector<std::string>& folders) {
  std::string text;
  for (const std::string& folder : folders) text += fmt::format("cgroup {}\n", folder);
  return append(file_.get(), text);
}

std::vector<std::string> JobRecord::lines_of(const std::string& key) const {
  std::vector<std::string> found;
  std::istringstream lines(contents(file_.get()));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(key + " ")) found.push_back(line.substr(key.size() + 1));
  }
  return found;
}

base::Status JobRecord::add_process(pid_t pid) {
  return append(file_.get(), fmt::format("process {}\n", process_mark(pid)));
}

bool JobRecord::clean(base::Duration limit) {
  end_marked(lines_of("process"), limit);
  std::vector<std::string> groups = lines_of("cgroup");
  std::erase_if(groups, [this](const std::string& folder) { return !is_group_of(folder, job_); });
  const bool ended = end_cgroups(groups, limit);
  if (ended) remove_mpi_segments(launch_of(job_), birth_of(file_.get()));
  std::error_code ignored;
  fs::remove_all(folder_ + "/" + job_, ignored);
  fs::remove_all(folder_ + "/pmi-" + job_, ignored);
  fs::remove(folder_ + "/" + job_ + ".agent", ignored);
  if (ended) ::unlink(path().c_str());
  return ended;
}

std::vector<std::string> job_records(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().extension() == kSuffix) found.push_back(entry.path().string());
  }
  return found;
}

}  // namespace regroup::process
