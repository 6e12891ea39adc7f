// Ranks on several nodes of one machine: each node has an arena of its own, and what members say to each
// other goes over UCX. The test is the agent of all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "collective/ucx/factory.h"
#include "tests/collective/job.h"

namespace regroup::collective::testing {

// What members are told instead of the address that another has published.
using Readdress = std::function<std::vector<std::byte>(std::vector<std::byte>)>;

// Rank r sits on node `nodes[r]`. Every process loads UCX for itself.
[[nodiscard]] std::unique_ptr<Job> make_ucx_job(std::vector<core::NodeId> nodes, const UcxSettings& settings,
                                                Readdress readdress = {});

// Of a job of these: rendezvous with the members of its host at which a rank has arrived.
[[nodiscard]] std::uint64_t local_barriers(Job& job, int rank);

// Likewise: where a rank can be called in a generation, once it has said so.
[[nodiscard]] std::optional<std::vector<std::byte>> address_in(Job& job, core::Generation g, int rank);

[[nodiscard]] std::unique_ptr<Job> make_ucx_pairs(int ranks);   // nodes 0 0 1 1 2 ...
[[nodiscard]] std::unique_ptr<Job> make_ucx_apart(int ranks);   // each on its own
[[nodiscard]] std::unique_ptr<Job> make_ucx_uneven(int ranks);  // 0 1 0 2 0 1 0 ...

}  // namespace regroup::collective::testing
