// Where the members of a job are: its hosts, and each rank's place.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/world.h"
#include "launcher/supervise/app.h"

namespace regroup::launcher {

// This host is number 0, whether members run on it or not; the OtherHosts follow.
struct JobHost {
  std::string name;
  std::uint32_t slots = 0;  // cores there are for members; 0: not known
};

// Of the members of a space, `counts` for each program from number `first_app` on, in rank order; the first
// is member `first`. `host_of` by rank; empty: one host.
[[nodiscard]] std::vector<Place> places_of(const std::vector<std::uint32_t>& counts, core::MemberId first,
                                           std::uint32_t first_app, std::uint32_t space,
                                           const std::vector<std::uint32_t>& host_of);

}  // namespace regroup::launcher
