// A job runs if its coordinator accepts connections or its file is locked. Folders of killed jobs
// are ignored.
#include "launcher/job/job_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>

#include "base/fd.h"
#include "launcher/transport/unix_socket.h"

namespace regroup::job {
namespace {

namespace fs = std::filesystem;

bool is_folder(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

constexpr std::chrono::minutes kStarting{
    1};  // a younger folder may belong to a job that is starting
constexpr std::size_t kIdLength = 8;
constexpr int kMostFolders = 10;  // tried in the temporary folder

// True: no process listens on the socket.
bool deserted(const std::string& socket) {
  const base::Code code = transport::connect_unix(socket).code();
  return code == base::Code::kUnavailable || code == base::Code::kNotFound;
}

// True: the folder of a job that does not run. Checks the agent's socket, too: the coordinator may
// be restarting, while an agent is never restarted.
bool left_behind(const fs::directory_entry& entry) {
  const std::string id = entry.path().filename().string();
  struct stat info {};
  if (id.size() != kIdLength ||
      !std::all_of(id.begin(), id.end(), [](unsigned char c) { return std::isxdigit(c); }))
    return false;
  if (::lstat(entry.path().c_str(), &info) != 0 || !S_ISDIR(info.st_mode) ||
      info.st_uid != ::geteuid())
    return false;
  const auto changed = std::chrono::system_clock::from_time_t(info.st_mtime);
  if (std::chrono::system_clock::now() - changed < kStarting) return false;
  const JobFiles files{entry.path().string()};
  return deserted(files.control_socket()) && deserted(files.agent_socket()) && !is_fixed(files);
}

void remove_what_was_left(const std::string& base) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(base, ignored)) {
    if (left_behind(entry)) remove_job_files({entry.path().string()});
  }
}

struct Running {
  std::vector<std::string> elastic, fixed;
};

Running running_jobs(const std::string& base) {
  Running found;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(base, ignored)) {
    const JobFiles files{entry.path().string()};
    if (transport::connect_unix(files.control_socket()).ok())
      found.elastic.push_back(files.id());
    else if (is_fixed(files))
      found.fixed.push_back(files.id());
  }
  return found;
}

std::string folder_of(const spec::Environment& environment, const char* variable) {
  const auto set = environment.find(variable);
  return set != environment.end() && !set->second.empty() && is_folder(set->second) ? set->second
                                                                                    : "";
}

struct Candidate {
  std::string folder;
  std::string above;  // must be ours as well; "": protects it by its sticky bit
};

// Depends only on the user and the environment, so that `regroup status` searches where the job
// created it.
std::vector<Candidate> candidates(const spec::Environment& environment) {
  std::vector<Candidate> out;
  if (const std::string xdg = folder_of(environment, "XDG_RUNTIME_DIR"); !xdg.empty())
    out.push_back({xdg + "/regroup", xdg});
  const std::string tmp = folder_of(environment, "TMPDIR");
  const std::string usual = fmt::format("{}/regroup-{}", tmp.empty() ? "/tmp" : tmp, ::geteuid());
  out.push_back({usual, ""});
  for (int i = 1; i < kMostFolders; ++i) out.push_back({fmt::format("{}-{}", usual, i), ""});
  return out;
}

// The parent must not belong to another user, who could replace the folder.
base::Status make_folder(const Candidate& candidate) {
  struct stat info {};
  const std::string& above = candidate.above;
  if (!above.empty() && ::stat(above.c_str(), &info) != 0)
    return base::system_error("stat", above, errno);
  if (!above.empty() && info.st_uid != ::geteuid())
    return base::invalid_argument(
        fmt::format("XDG_RUNTIME_DIR={}: expected a directory of this user", above));
  return transport::make_private_folder(candidate.folder);
}

}  // namespace

base::Result<std::string> runtime_folder(const spec::Environment& environment, std::string* note) {
  base::Status why;
  for (const Candidate& candidate : candidates(environment)) {
    const std::string& folder = candidate.folder;
    const base::Status made = make_folder(candidate);
    if (!made.ok() && why.ok()) why = made;
    if (!made.ok()) continue;
    if (note != nullptr && !why.ok()) *note = fmt::format("{}: using {}", why.message(), folder);
    return folder;
  }
  return why;
}

base::Result<JobFiles> make_job_files(const spec::Environment& environment, const std::string& id) {
  REGROUP_ASSIGN_OR_RETURN(auto base, runtime_folder(environment));
  remove_what_was_left(base);
  JobFiles files{base + "/" + id};
  REGROUP_RETURN_IF_ERROR(transport::make_private_folder(files.folder));
  return files;
}

void remove_job_files(const JobFiles& files) {
  std::error_code ignored;
  fs::remove_all(files.folder, ignored);
}

bool is_fixed(const JobFiles& files) {
  const base::Fd file(::open(files.fixed().c_str(), O_RDONLY | O_CLOEXEC));
  return file.valid() && ::flock(file.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

std::string only_status(const std::string& id) {
  return fmt::format(
      "job {} has a fixed number of members (-np N), which supports only `regroup status`", id);
}

base::Result<JobFiles> find_job(const spec::Environment& environment, const std::string& id,
                                JobKind kind) {
  REGROUP_ASSIGN_OR_RETURN(const auto folder, runtime_folder(environment));
  const Running running = running_jobs(folder);
  std::vector<std::string> jobs = running.elastic;
  if (id.empty() && jobs.size() == 1) return JobFiles{folder + "/" + jobs[0]};
  if (kind == JobKind::kAny) jobs.insert(jobs.end(), running.fixed.begin(), running.fixed.end());
  if (id.empty() && jobs.size() == 1) return JobFiles{folder + "/" + jobs[0]};
  if (std::find(jobs.begin(), jobs.end(), id) != jobs.end()) return JobFiles{folder + "/" + id};
  const bool fixed =
      std::find(running.fixed.begin(), running.fixed.end(), id) != running.fixed.end();
  const std::string what = kind == JobKind::kAny ? "job" : "elastic job";
  const std::string there =
      jobs.empty() ? "none is running" : fmt::format("running: {}", fmt::join(jobs, ", "));
  std::string message = fmt::format("no {} {} of this user; {}", what, id, there);
  if (fixed)
    message = only_status(id);
  else if (id.empty())
    message = jobs.empty()
                  ? fmt::format("no {} of this user is running", what)
                  : fmt::format("several {}s of this user are running; expected the ID of one: {}",
                                what, fmt::join(jobs, ", "));
  return base::not_found(message);
}

}  // namespace regroup::job
