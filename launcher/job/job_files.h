// The files of a job: a private folder per job, named by its id, in the user's folder of sockets.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "launcher/process/environment.h"

namespace regroup::job {

struct JobFiles {
  std::string folder;

  [[nodiscard]] std::string agent_socket() const { return folder + "/agent"; }
  [[nodiscard]] std::string control_socket() const { return folder + "/control"; }
  [[nodiscard]] std::string grants_socket() const { return folder + "/grants"; }  // `regroup join`
  [[nodiscard]] std::string usage() const { return folder + "/usage"; }  // of members on this host
  [[nodiscard]] std::string fixed() const { return folder + "/fixed"; }  // fixed_job.h
  [[nodiscard]] std::string ps() const { return folder + "/ps"; }  // parameter_server.h: memory
  [[nodiscard]] std::string ps_status() const { return folder + "/ps-status"; }
  [[nodiscard]] std::string ps_resize() const { return folder + "/ps-resize"; }
  [[nodiscard]] std::string kill_socket() const { return folder + "/kill"; }  // job_requests.h
  [[nodiscard]] std::string exits() const { return folder + "/exits"; }  // of ranks, with status 0
  [[nodiscard]] std::string id() const { return folder.substr(folder.rfind('/') + 1); }
  [[nodiscard]] std::string journal() const { return folder + "/journal"; }
};

// $XDG_RUNTIME_DIR/regroup, or regroup-UID in $TMPDIR or /tmp; made with mode 0700 if need be.
// Where that is not ours alone, the first of regroup-UID, regroup-UID-1, ... that is; `note`, if
// any, gets a sentence on it.
[[nodiscard]] base::Result<std::string> runtime_folder(const spec::Environment& environment,
                                                       std::string* note = nullptr);

// Creates the folder of job `id`, which HeldJobFiles removes, and removes the folders of jobs that
// do not run.
[[nodiscard]] base::Result<JobFiles> make_job_files(const spec::Environment& environment,
                                                    const std::string& id);
// Best effort: other jobs ignore files that remain.
void remove_job_files(const JobFiles& files);

// Removes the files of a job when it is destroyed. The launcher and the process of its agent own
// one each, since each of them may be killed before the other; who comes second finds nothing to
// remove.
class HeldJobFiles {
 public:
  HeldJobFiles() = default;  // of no job
  explicit HeldJobFiles(JobFiles files) : files_(std::move(files)) {}
  HeldJobFiles(HeldJobFiles&& other) noexcept : files_(std::exchange(other.files_, {})) {}
  HeldJobFiles& operator=(HeldJobFiles&& other) noexcept {
    std::swap(files_, other.files_);
    return *this;
  }
  ~HeldJobFiles() {
    if (!files_.folder.empty()) remove_job_files(files_);
  }

  [[nodiscard]] const JobFiles& operator*() const { return files_; }
  [[nodiscard]] const JobFiles* operator->() const { return &files_; }

 private:
  JobFiles files_;
};

// It is a job without a coordinator (fixed_job.h), and runs.
[[nodiscard]] bool is_fixed(const JobFiles& files);

// Why a job of a fixed size refuses other commands than `regroup status`.
[[nodiscard]] std::string only_status(const std::string& id);

enum class JobKind : std::uint8_t { kElastic, kAny };
// The job `id`, or if that is "" the only elastic one there is, else the only one. kNotFound says
// which there are.
[[nodiscard]] base::Result<JobFiles> find_job(const spec::Environment& environment,
                                              const std::string& id,
                                              JobKind kind = JobKind::kElastic);

}  // namespace regroup::job
