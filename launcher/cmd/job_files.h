// Where the files of an elastic job lie: a private folder per job, named by its id, in the user's folder of
// sockets.
#pragma once

#include <string>
#include <vector>

#include "core/status.h"
#include "launcher/supervise/environment.h"

namespace regroup::cmd {

struct JobFiles {
  std::string folder;

  [[nodiscard]] std::string agent_socket() const { return folder + "/agent"; }
  [[nodiscard]] std::string control_socket() const { return folder + "/control"; }
  [[nodiscard]] std::string usage() const { return folder + "/usage"; }  // of members on this host
  [[nodiscard]] std::string journal() const { return folder + "/journal"; }
};

// $XDG_RUNTIME_DIR/regroup, or regroup-UID in $TMPDIR or /tmp; made with mode 0700 if need be. Where that is
// not ours alone, the first of regroup-UID, regroup-UID-1, ... that is; `note`, if any, gets a sentence on
// it.
[[nodiscard]] core::Result<std::string> runtime_folder(const launcher::Environment& environment,
                                                       std::string* note = nullptr);

// Makes the folder of job `id`, and removes those of jobs of which nothing lives any more.
[[nodiscard]] core::Result<JobFiles> make_job_files(const launcher::Environment& environment,
                                                    const std::string& id);
// Best effort: what is left is ignored by others.
void remove_job_files(const JobFiles& files);

// The job `id`, or if that is "" the only one there is. kNotFound says which there are.
[[nodiscard]] core::Result<JobFiles> find_job(const launcher::Environment& environment,
                                              const std::string& id);

}  // namespace regroup::cmd
