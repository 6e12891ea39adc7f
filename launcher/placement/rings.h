// The rings that collectives of a set of GPUs run over, several at once, and how fast they are
// together. docs/guide/placement.md explains the model.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "launcher/placement/routes.h"

namespace regroup::placement {

struct Ring {
  // Of Machine::paths, in order; the last is joined with the first.
  std::vector<std::uint32_t> ends;
  double gbytes = 0;  // that it carries, half of it in each direction
};

// `gbytes`: what every rank sends and receives at once ("bus bandwidth"); infinite if there is
// nobody to talk to, 0 if two of them are not joined.
struct RingPlan {
  double gbytes = 0;
  std::vector<Ring> rings;                 // the first carries the most
  std::vector<std::uint32_t> narrow_rows;  // of Routes: full, and worth more
};

// Each ring passes all `gpus` and, if there are `nics`, one of these, where it goes on to other
// machines. The best that rings can do for up to 9 stations, and rings that are found to be good
// for more.
[[nodiscard]] RingPlan plan_rings(const Routes& routes, std::span<const std::uint32_t> gpus,
                                  std::span<const std::uint32_t> nics);

}  // namespace regroup::placement
