// Pictures need cairo, which the launcher does not load, so another program draws them. It gets the
// user's folder and the topology that the environment names instead of this machine.
#include "launcher/cli/topo.h"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "launcher/cli/helper.h"
#include "launcher/job/job_files.h"
#include "launcher/topology/read_topology.h"

namespace regroup::cli {

int run_topo(std::vector<std::string> words, const spec::Environment& environment) {
  const auto folder = job::runtime_folder(environment);
  words.insert(words.begin(), {folder.ok() ? *folder : "-", topology::machine_source(environment)});
  if (const std::string why = topology::passed_over_by_hwloc(environment); !why.empty())
    fmt::print(stderr, "regroup topo: {}\n", why);
  return become_helper("topo", std::move(words), environment);
}

}  // namespace regroup::cli
