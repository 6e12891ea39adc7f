// Pictures want cairo, which the launcher does not load. The helper is told where this user's files lie.
#include "launcher/cmd/topo.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "launcher/cmd/job_files.h"
#include "launcher/cmd/options.h"
#include "launcher/supervise/environment.h"

namespace regroup::cmd {

bool is_topo(const std::string& program, const std::vector<std::string>& args) {
  const std::string name = program.substr(program.find_last_of('/') + 1);
  return !args.empty() && args[0] == "topo" && !name.starts_with("mpirun") && !name.starts_with("mpiexec");
}

int run_topo(const std::vector<std::string>& words) {
  const std::string program = launcher::find_helper("regroup-topo");
  const auto folder = runtime_folder(read_environment());
  std::vector<std::string> all = {"regroup-topo", folder.ok() ? *folder : "-"};
  all.insert(all.end(), words.begin(), words.end());
  std::vector<char*> pointers;
  for (std::string& word : all) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::execv(program.c_str(), pointers.data());
  fmt::print(stderr, "regroup topo: program {} cannot be started: {}\n", program, std::strerror(errno));
  return 1;
}

}  // namespace regroup::cmd
