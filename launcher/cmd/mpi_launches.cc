// A launch that a newer one overtook before it began is dropped: its coordinator is gone.
#include "launcher/cmd/mpi_launches.h"

#include <algorithm>

namespace regroup::cmd {
namespace {

pmi::MpiEvents events_that_say(MpiLaunches::Say say) {
  pmi::MpiEvents events;  // how members end is seen from their exit statuses
  events.connected = [](const pmi::Connected&) {};
  events.finalized = [](const pmi::Finalized&) {};
  events.aborted = [](const pmi::Aborted&) {};
  events.spawn = [](const pmi::Spawn&) {};
  events.said = std::move(say);
  return events;
}

}  // namespace

MpiLaunches::MpiLaunches(boost::asio::io_context& loop, const pmi::HelperOptions& helper, std::uint32_t slots,
                         Say say, StartMember start)
    : slots_(slots), start_(std::move(start)), mpi_(loop, helper, events_that_say(std::move(say))) {}

void MpiLaunches::add(const core::Start& start) {
  if (start.rank == 0) waiting_.clear();
  waiting_.push_back(start);
  if (waiting_.size() == start.world_size) open();
}

bool MpiLaunches::forget(core::MemberId member) {
  return std::erase_if(waiting_, [member](const core::Start& start) { return start.member == member; }) > 0;
}

void MpiLaunches::open() {
  const auto members = static_cast<std::uint32_t>(waiting_.size());
  const bool oversubscribed = slots_ != 0 && members > slots_;
  const std::uint32_t space = spaces_++;
  mpi_.open({space, slots_, oversubscribed, {members}, 0},
            [this, space](std::vector<launcher::Extras> extras) { ready(space, std::move(extras)); });
}

void MpiLaunches::ready(std::uint32_t space, std::vector<launcher::Extras> extras) {
  if (space + 1 != spaces_) return;
  for (const core::Start& start : std::exchange(waiting_, {})) {
    launcher::Extras of_member = std::move(extras.at(start.rank));
    if (slots_ != 0 && start.world_size > slots_) {
      for (const auto& [name, value] : pmi::yield_hints()) of_member.environment.emplace(name, value);
    }
    start_(start, std::move(of_member));
  }
}

}  // namespace regroup::cmd
