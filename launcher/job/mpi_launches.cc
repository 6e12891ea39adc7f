// A launch that a newer one overtook before it began is dropped: its coordinator is gone.
#include "launcher/job/mpi_launches.h"

#include <algorithm>

namespace regroup::job {
MpiLaunches::MpiLaunches(boost::asio::io_context& loop, pmi::HelperOptions helper, process::App app,
                         std::uint32_t slots, Say say, StartMember start)
    : app_(std::move(app)),
      slots_(slots),
      say_(std::move(say)),
      start_(std::move(start)),
      mpi_(loop, std::move(helper), app_, events()) {}

// How members end is seen from their exit statuses.
pmi::MpiEvents MpiLaunches::events() {
  pmi::MpiEvents events;
  events.connected = [](const pmi::Connected&) {};
  events.finalized = [](const pmi::Finalized&) {};
  events.aborted = [](const pmi::Aborted&) {};
  events.spawn = [this](const pmi::Spawn& spawn) {
    const std::string why = "MPI_Comm_spawn: not supported in an elastic job (-np MIN:MAX)";
    say_(why);
    mpi_.tell(pmi::SpawnDone{spawn.request, 0, why});
  };
  events.said = [this](const std::string& text) { say_(text); };
  return events;
}

void MpiLaunches::add(const proto::Start& start) {
  if (start.rank == 0) waiting_.clear();
  waiting_.push_back(start);
  if (waiting_.size() == start.world_size) open();
}

bool MpiLaunches::forget(proto::MemberId member) {
  return std::erase_if(waiting_,
                       [member](const proto::Start& start) { return start.member == member; }) > 0;
}

void MpiLaunches::open() {
  const auto members = static_cast<std::uint32_t>(waiting_.size());
  const bool oversubscribed = slots_ != 0 && members > slots_;
  const std::uint32_t space = spaces_++;
  if (space > 0) mpi_.tell(pmi::CloseSpace{space - 1});
  mpi_.open(
      {space, slots_, oversubscribed, {members}, 0, {}},
      [this, space](std::vector<process::Extras> extras) { ready(space, std::move(extras)); });
}

void MpiLaunches::ready(std::uint32_t space, std::vector<process::Extras> extras) {
  if (space + 1 != spaces_) return;
  for (const proto::Start& start : std::exchange(waiting_, {})) {
    process::Extras of_member = std::move(extras.at(start.rank));
    pmi::add_hints(of_member, app_, slots_ != 0 && start.world_size > slots_);
    start_(start, std::move(of_member));
  }
}

}  // namespace regroup::job
