// Ranks on several hosts, simulated on one machine: each host has an arena of its own, and its
// members exchange messages with those of other hosts over UCX. The test is the agent of all hosts.
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

// Changes an address that a member has published, for all members that look it up.
using Readdress = std::function<std::vector<std::byte>(std::vector<std::byte>)>;

// Called in a rank with its mesh of a new generation.
using OnMesh = std::function<void(ucx::PeerMesh& mesh, const shmem::Arena& arena,
                                  const proto::World& world, proto::SlotId self)>;

// Rank r is on host `nodes[r]`. Every process loads UCX itself.
[[nodiscard]] std::unique_ptr<TestJob> make_ucx_job(std::vector<proto::NodeId> nodes,
                                                    const ucx::UcxSettings& settings,
                                                    Readdress readdress = {}, OnMesh on_mesh = {});

// For a job of make_ucx_job(): the number of local barriers at which a rank has arrived.
[[nodiscard]] std::uint64_t local_barriers(TestJob& job, int rank);

// For a job of make_ucx_job(): the address that a rank has published in a generation, if it has.
[[nodiscard]] std::optional<std::vector<std::byte>> address_in(TestJob& job, proto::Generation g,
                                                               int rank);

[[nodiscard]] std::unique_ptr<TestJob> make_ucx_pairs(int ranks);   // nodes 0 0 1 1 2 ...
[[nodiscard]] std::unique_ptr<TestJob> make_ucx_apart(int ranks);   // each on its own
[[nodiscard]] std::unique_ptr<TestJob> make_ucx_uneven(int ranks);  // 0 1 0 2 0 1 0 ...

}  // namespace regroup::collective::testing
