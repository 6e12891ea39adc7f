// Pictures want cairo, which the launcher does not load. The helper is told where this user's files lie.
#include "launcher/cmd/topo.h"

#include <utility>

#include "launcher/cmd/helper.h"
#include "launcher/cmd/job_files.h"
#include "launcher/cmd/options.h"

namespace regroup::cmd {

bool is_topo(const std::string& program, const std::vector<std::string>& args) {
  const std::string name = program.substr(program.find_last_of('/') + 1);
  return !args.empty() && args[0] == "topo" && !name.starts_with("mpirun") && !name.starts_with("mpiexec");
}

int run_topo(std::vector<std::string> words) {
  const launcher::Environment environment = read_environment();
  const auto folder = runtime_folder(environment);
  words.insert(words.begin(), folder.ok() ? *folder : "-");
  return become_helper("topo", std::move(words), environment);
}

}  // namespace regroup::cmd
