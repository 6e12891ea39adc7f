// Any bytes as a command line with its host file, app file and tuning file: refused or understood,
// never a crash, and what is understood is consistent. The input is cut at each byte 0: the first
// part is all of the files, the rest are the arguments.
#include "launcher/cli/parse.h"

#include <cstdint>
#include <string>
#include <vector>

#include "base/values.h"
#include "tests/fuzz/require.h"

using namespace regroup;
using regroup::fuzz::require;

namespace {

void check(const spec::JobSpec& job) {
  require(job.apps.empty() == !job.job_file.empty());
  require(job.min <= job.max);
  std::uint64_t members = 0;
  for (const spec::AppRequest& app : job.apps) {
    require(!app.command.empty() && !app.command[0].empty());
    members += app.count.value_or(0);
  }
  require(job.elastic ? job.apps.size() == 1 : members == job.max);
  for (const spec::HostRequest& host : job.hosts) require(!host.name.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> args = base::split(bytes, std::string_view("\0", 1));
  const std::string file = args[0];
  args.erase(args.begin());
  for (const char* program : {"regroup", "mpirun", "mpiexec.hydra"}) {
    const cli::ParseContext context{
        program,
        {{"PATH", "/bin"}, {"A", "1"}},
        {"here.local"},
        [&file](const std::string&) { return base::Result<std::string>(file); },
        [](const std::string& path) { return path.size() % 2 == 0; }};
    auto command = cli::parse_command_line(args, context);
    require(command.ok() || !command.status().message().empty());
    if (command.ok() && command->verb == cli::Verb::kRun) check(command->job);
  }
  return 0;
}
