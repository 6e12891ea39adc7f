// Bytes of job files: whatever comes is refused with a message that begins with the file's name, or
// makes a job whose roles can be given to every member.
#include "launcher/job/job_file.h"

#include <cstdint>

#include "tests/fuzz/require.h"

using namespace regroup::base;
using namespace regroup::job;
using namespace regroup::spec;
using regroup::fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto job = parse_job({reinterpret_cast<const char*>(data), size}, "f", {}, 8);
  if (!job.ok()) {
    require(job.status().message().starts_with("f:"));
    return 0;
  }
  require(job->apps.size() == job->roles.size() && check_roles(job->roles).ok());
  for (const AppRequest& app : job->apps) require(!app.command.empty() && app.count >= 1U);
  return 0;
}
