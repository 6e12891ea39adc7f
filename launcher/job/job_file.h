// Job files (regroup --job FILE.yaml): YAML or JSON with the fields of job_fields.h;
// docs/guide/clusterspec.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/job/cluster_spec.h"
#include "launcher/spec/request.h"

namespace regroup::job {

struct JobFile {
  std::string name;
  std::vector<spec::AppRequest> apps;  // one per role, in the same order
  std::vector<Role> roles;
  std::optional<std::uint32_t> retry_count;
  std::vector<std::string> notes;  // "FILE:LINE: what is not heeded"
};

// `file` is the name that messages begin with. Every app's environment is `base` with jobEnvs,
// PAI_DATA_DIR and PAI_OUTPUT_DIR; `gpus` is how many GPUs the job may use. kInvalidArgument names
// file, line, field, what is wanted there and what stands there: `train.yaml:12:
// taskRoles[1].taskNumber: a whole number from 1 to 65536 is wanted, not "two"`.
[[nodiscard]] base::Result<JobFile> parse_job(const std::string& text, const std::string& file,
                                              const spec::Environment& base, std::uint32_t gpus);
// The same from a file of at most 1 MiB; kNotFound names it.
[[nodiscard]] base::Result<JobFile> read_job(const std::string& path, const spec::Environment& base,
                                             std::uint32_t gpus);

// NVIDIA's on this machine.
[[nodiscard]] std::uint32_t count_gpus();

}  // namespace regroup::job
