// Who was never in MPI_Init is replaced at its seat; a world that somebody has left otherwise is of no more
// use, and RoleRules starts the whole job again.
#include "launcher/roles/role_world.h"

#include <fmt/format.h>

#include <numeric>

namespace regroup::launcher {

RoleWorld::RoleWorld(boost::asio::io_context& loop, Options options, App app, Events events)
    : options_(std::move(options)), app_(std::move(app)), events_(std::move(events)) {
  members_.resize(std::accumulate(options_.counts.begin(), options_.counts.end(), 0U));
  if (options_.helper) mpi_ = std::make_unique<pmi::Mpi>(loop, *options_.helper, app_, this->events());
}

pmi::MpiEvents RoleWorld::events() {
  pmi::MpiEvents events;
  events.connected = [this](const pmi::Connected& m) { stands(m.seat, MemberEnd::Mpi::kInside); };
  events.finalized = [this](const pmi::Finalized& m) { stands(m.seat, MemberEnd::Mpi::kLeft); };
  events.aborted = [this](const pmi::Aborted& aborted) {
    if (aborted.seat.space != space_ || aborted.seat.rank >= members_.size()) return;
    members_[aborted.seat.rank].abort = aborted;
    events_.aborted(aborted.seat.rank);
  };
  events.spawn = [this](const pmi::Spawn& spawn) {
    const std::string why = "MPI_Comm_spawn: not in a job of roles";
    events_.said(why);
    mpi_->tell(pmi::SpawnDone{spawn.request, 0, why});
  };
  events.said = [this](const std::string& text) { events_.said(text); };
  return events;
}

void RoleWorld::stands(pmi::Seat seat, MemberEnd::Mpi standing) {
  if (seat.space == space_ && seat.rank < members_.size()) members_[seat.rank].standing = standing;
}

void RoleWorld::settle() {
  if (mpi_) mpi_->settle();
}

void RoleWorld::gone(std::uint32_t rank) {
  if (mpi_) mpi_->tell(pmi::MemberGone{{space_, rank}});
}

void RoleWorld::start(const StartMember& start) {
  Member& member = members_.at(start.rank);
  member.standing = MemberEnd::Mpi::kNever;
  member.abort.reset();
  member.waiting = start;
  if (!mpi_) return release(start.rank);
  if (!opened_) return open();
  if (member.extras) return release(start.rank);
  if (opening_) return;
  mpi_->reopen({space_, start.rank}, [this, space = space_, rank = start.rank](Extras extras) {
    if (space != space_) return;
    members_[rank].extras = std::move(extras);
    release(rank);
  });
}

std::vector<std::uint32_t> RoleWorld::renew() {
  ++space_;
  opened_ = opening_ = false;
  std::vector<std::uint32_t> dropped;
  for (std::uint32_t rank = 0; rank < members_.size(); ++rank) {
    if (members_[rank].waiting) dropped.push_back(rank);
    members_[rank] = {};
  }
  return dropped;
}

void RoleWorld::open() {
  opened_ = opening_ = true;
  if (space_ > 0) mpi_->tell(pmi::CloseSpace{space_ - 1});
  const bool oversubscribed = options_.slots != 0 && members_.size() > options_.slots;
  mpi_->open({space_, options_.slots, oversubscribed, options_.counts, 0, options_.bindings},
             [this, space = space_](std::vector<Extras> extras) {
               if (space != space_) return;
               opening_ = false;
               for (std::uint32_t rank = 0; rank < members_.size(); ++rank) {
                 members_[rank].extras = std::move(extras.at(rank));
                 if (members_[rank].waiting) release(rank);
               }
             });
}

void RoleWorld::release(std::uint32_t rank) {
  Member& member = members_[rank];
  const StartMember start = *std::exchange(member.waiting, std::nullopt);
  Extras extras = member.extras ? std::move(*member.extras) : Extras();
  member.extras.reset();
  if (options_.slots != 0 && members_.size() > options_.slots) pmi::add_yield_hints(extras, app_);
  events_.may_start(start, std::move(extras));
}

}  // namespace regroup::launcher
