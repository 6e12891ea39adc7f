// Opens contexts, wires and communicators.
#include "collective/ucx/factory.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "collective/ucx/communicator.h"
#include "collective/ucx/library.h"
#include "collective/ucx/wire.h"

namespace regroup::collective {

using core::Result;

Result<std::shared_ptr<const UcxContext>> open_ucx(const UcxSettings& settings) {
  return UcxContext::open(settings);
}

Result<std::shared_ptr<Wire>> open_wire(std::shared_ptr<const UcxContext> context, const core::Arena& arena,
                                        const core::World& world, core::Seat self, Addresses addresses) {
  return Wire::open(std::move(context), arena, world, self, std::move(addresses));
}

Result<std::unique_ptr<Communicator>> make_ucx(std::shared_ptr<Wire> wire, const ShmOptions& options) {
  const core::World& world = wire->world();
  const core::Seat self = world.members[static_cast<std::size_t>(wire->rank())].seat;
  UcxCommunicator::Seats seats;
  seats.line = {options.instance.value, 0, static_cast<std::uint32_t>(options.channel)};
  seats.ranks = options.ranks;
  for (std::uint32_t r = 0; options.ranks.empty() && r < world.size(); ++r)
    seats.ranks.push_back(static_cast<int>(r));
  if (std::ranges::adjacent_find(seats.ranks, std::greater_equal{}) != seats.ranks.end()) {
    return core::invalid_argument("make_ucx: the ranks must be ascending");
  }
  const auto mine = std::ranges::find(seats.ranks, wire->rank());
  if (mine == seats.ranks.end()) {
    return core::invalid_argument(fmt::format(
        "make_ucx: rank {} is not among the {} ranks of the communicator", wire->rank(), seats.ranks.size()));
  }
  seats.rank = static_cast<int>(mine - seats.ranks.begin());
  ShmOptions here = options;
  here.ranks.clear();
  for (const int r : seats.ranks) {
    if (r < 0 || r >= static_cast<int>(world.size())) {
      return core::invalid_argument(
          fmt::format("make_ucx: rank {} of a World of {} members", r, world.size()));
    }
    if (world.members[static_cast<std::size_t>(r)].seat.node == self.node) here.ranks.push_back(r);
  }
  auto local = open_shm(wire->arena(), world, self, here);
  if (!local.ok()) return local.status();
  seats.local = std::move(*local);
  auto engine = std::make_shared<Engine>(std::move(wire), seats.local->share_engine());
  return UcxCommunicator::open(std::move(engine), std::move(seats));
}

}  // namespace regroup::collective
