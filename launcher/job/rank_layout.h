// Assigns the members of a job to ranks, programs and hosts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/process/app.h"
#include "proto/world.h"

namespace regroup::job {

// Number 0 is this host, whether members run on it or not; the OtherHosts follow.
struct JobHost {
  std::string name;
  std::uint32_t slots = 0;  // cores for members; 0: unknown
};

// The members of one MPI_COMM_WORLD, in rank order. `counts` has the number of members of each
// program, from program number `first_app` on; rank 0 is member `first`. `host_of` gives the host
// of each rank; empty: one host.
[[nodiscard]] std::vector<process::Place> layout_ranks(const std::vector<std::uint32_t>& counts,
                                                       proto::MemberId first,
                                                       std::uint32_t first_app, std::uint32_t space,
                                                       const std::vector<std::uint32_t>& host_of);

}  // namespace regroup::job
