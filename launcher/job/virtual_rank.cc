// What the launcher says of a rank here counts more than the user's own LOCAL_RANK, as under
// torchrun.
#include "launcher/job/virtual_rank.h"

#include <fmt/format.h>

#include <map>
#include <numeric>
#include <string>

#include "base/text.h"
#include "base/values.h"

namespace regroup::job {
namespace {

base::Status add_device(const spec::AppRequest& app, std::uint32_t local_rank,
                        spec::Environment& rank) {
  if (rank.contains("CUDA_VISIBLE_DEVICES") || rank.contains("ROCR_VISIBLE_DEVICES")) return {};
  const auto all = app.environment.find("CUDA_VISIBLE_DEVICES");
  std::string device = std::to_string(local_rank);
  if (all != app.environment.end()) {
    const std::vector<std::string> devices = base::split(all->second, ",");
    if (local_rank >= devices.size()) {
      return base::invalid_argument(
          fmt::format("--virtual-local-rank: local rank {} needs a device of its own, "
                      "CUDA_VISIBLE_DEVICES={} has {}",
                      local_rank, all->second, devices.size()));
    }
    device = base::trimmed_word(devices[local_rank]);
  }
  rank["CUDA_VISIBLE_DEVICES"] = device;
  return {};
}

}  // namespace

base::Status add_virtual_ranks(const spec::JobSpec& spec, const std::vector<std::uint32_t>& counts,
                               const std::vector<std::uint32_t>& host_of,
                               std::vector<spec::Environment>& environments) {
  environments.resize(std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
  std::map<std::uint32_t, std::uint32_t> on_host;
  std::size_t rank = 0;
  for (std::size_t app = 0; app < counts.size(); ++app) {
    for (std::uint32_t i = 0; i < counts[app]; ++i, ++rank) {
      const std::uint32_t host = rank < host_of.size() ? host_of[rank] : 0;
      environments[rank]["LOCAL_RANK"] = "0";
      REGROUP_RETURN_IF_ERROR(add_device(spec.apps.at(app), on_host[host]++, environments[rank]));
    }
  }
  return {};
}

}  // namespace regroup::job
