// A job is there when its coordinator accepts connections; folders of jobs that were killed do not count.
#include "launcher/cmd/job_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "launcher/supervise/unix_socket.h"

namespace regroup::cmd {
namespace {

namespace fs = std::filesystem;

bool is_folder(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

std::vector<std::string> running_jobs(const std::string& base) {
  std::vector<std::string> found;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(base, ignored)) {
    const JobFiles files{entry.path().string()};
    if (launcher::connect_unix(files.control_socket()).ok())
      found.push_back(entry.path().filename().string());
  }
  return found;
}

}  // namespace

core::Result<std::string> runtime_folder(const launcher::Environment& environment) {
  const auto xdg = environment.find("XDG_RUNTIME_DIR");
  const bool usable = xdg != environment.end() && !xdg->second.empty() && is_folder(xdg->second);
  std::string folder = usable ? xdg->second + "/regroup" : fmt::format("/tmp/regroup-{}", ::geteuid());
  REGROUP_RETURN_IF_ERROR(launcher::make_private_folder(folder));
  return folder;
}

core::Result<JobFiles> make_job_files(const launcher::Environment& environment, const std::string& id) {
  auto base = runtime_folder(environment);
  if (!base.ok()) return base.status();
  JobFiles files{*base + "/" + id};
  REGROUP_RETURN_IF_ERROR(launcher::make_private_folder(files.folder));
  return files;
}

void remove_job_files(const JobFiles& files) {
  std::error_code ignored;
  fs::remove_all(files.folder, ignored);
}

core::Result<JobFiles> find_job(const launcher::Environment& environment, const std::string& id) {
  auto base = runtime_folder(environment);
  if (!base.ok()) return base.status();
  const std::vector<std::string> jobs = running_jobs(*base);
  if (id.empty() && jobs.size() == 1) return JobFiles{*base + "/" + jobs[0]};
  for (const std::string& job : jobs) {
    if (job == id) return JobFiles{*base + "/" + job};
  }
  const std::string there =
      jobs.empty() ? "none is running" : fmt::format("running: {}", fmt::join(jobs, ", "));
  return core::Status(core::Code::kNotFound,
                      id.empty() ? fmt::format("which elastic job? {}", there)
                                 : fmt::format("no elastic job {} of this user; {}", id, there));
}

}  // namespace regroup::cmd
