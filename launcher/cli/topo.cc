// Pictures need cairo, which the launcher does not load, so another program draws them. It gets the user's
// folder and the topology that the environment names instead of this machine.
#include "launcher/cli/topo.h"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "launcher/cli/helper.h"
#include "launcher/job/job_files.h"
#include "launcher/topology/read_topology.h"

namespace regroup::cmd {

int run_topo(std::vector<std::string> words, const launcher::Environment& environment) {
  const auto folder = runtime_folder(environment);
  words.insert(words.begin(), {folder.ok() ? *folder : "-", launcher::machine_source(environment)});
  if (const std::string why = launcher::passed_over_by_hwloc(environment); !why.empty())
    fmt::print(stderr, "regroup topo: {}\n", why);
  return become_helper("topo", std::move(words), environment);
}

}  // namespace regroup::cmd
