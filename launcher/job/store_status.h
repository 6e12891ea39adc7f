// What clients and `regroup status` get of the stores of a job's parameter server together.
// docs/design/ps_hosts.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/job/store_replicas.h"

namespace regroup::job {

// How clients find a store.
struct StorePlace {
  std::string address;  // of its gateway
  std::string socket;   // where members of its host get its memory
};

// REGROUP_PS of members on `host`: where it finds each store, by number, separated by ";", and
// last, if there are several, the number of copies of each range, as "replicas=2".
[[nodiscard]] std::string stores_text(const std::vector<StorePlace>& stores, std::size_t host,
                                      std::size_t replicas = 1);

// Of one store.
struct StoreStatus {
  std::string host;
  base::Result<std::string> json;  // ParameterServer::status_json()
  bool lost = false;               // for good; then `json` says so
};
// The status of all stores, in the form of one, with "host" in each server and move, and "stores":
// for each {"host", "view", "bytes", "ranges", "updates", "restarts"}, or {"host", "why"} if it has
// not said, with "lost" if it is lost. Sums where numbers are of a store; clocks and steps are of
// the first store that has some, since all clients are at all stores. With several replicas in
// addition {"replicas", "may_be_lost"}: StoreReplicas::spare().
[[nodiscard]] std::string merged_status(const std::vector<StoreStatus>& stores,
                                        const StoreReplicas& replicas);

// ParameterServer::tables_version() of the store that has said `status`; none if it is malformed.
[[nodiscard]] std::optional<std::uint64_t> version_of(const std::string& status);

}  // namespace regroup::job
