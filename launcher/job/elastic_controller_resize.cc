// How an elastic job on several hosts grows and shrinks with its allocation.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "launcher/job/elastic_controller.h"

namespace regroup::job {
namespace {

constexpr std::chrono::milliseconds kIdlePoll{200};    // between checks for idle hosts
constexpr std::chrono::milliseconds kReclaimPoll{50};  // between checks for free slots

}  // namespace

// The allocation of the job has grown by new hosts, or by slots on hosts of the job.
base::Status ElasticController::on_growth(lease::GrantId id, const lease::LeaseOffer& offer) {
  if (!options_.scaler) return base::invalid_argument("the allocation of this job cannot grow");
  std::uint32_t slots = 0;
  for (const spec::HostRequest& host : offer.grant.hosts) {
    if (const auto index = find(host.name); index && !exits_.stays(*index))
      return base::unavailable(fmt::format("host {} is being returned", host.name));
    slots += host.slots;
  }
  options_.scaler->grow(offer.grant.hosts);
  for (const spec::HostRequest& host : offer.grant.hosts) {
    const auto index = find(host.name);
    if (!index) {
      add(host, options_.scaler->way());
    } else {
      change_slots(*index, slots_.given(*index) + host.slots, reclaims_.has(*index));
    }
  }
  const std::string what =
      fmt::format("{} grants {} more", options_.scaler->title(), slots_text(slots));
  say(what);
  lease_server_.end(id, what);
  return {};
}

// The allocator reclaims hosts of the job's own allocation, or some of their slots.
base::Status ElasticController::on_wanted(lease::GrantId id, const lease::LeaseRevoke& what) {
  if (agent_.ending()) return base::unavailable("the job is over");
  if (what.hosts.empty()) return base::invalid_argument("LeaseRevoke: expected at least one host");
  std::set<std::string> named;
  for (const spec::HostRequest& host : what.hosts) {
    if (!named.insert(host.name).second)
      return base::invalid_argument(fmt::format("LeaseRevoke: host {} is listed twice", host.name));
    const auto index = find(host.name);
    const bool part = index && host.slots < slots_.given(*index);
    if (!index || !options_.scaler || !options_.scaler->has(host.name) ||
        (!part && !options_.scaler->takes_back(host.name)))
      return base::invalid_argument(fmt::format("host {}: this job cannot return it", host.name));
    if (!exits_.stays(*index) || reclaims_.has(*index))
      return base::unavailable(fmt::format("host {} is already being returned", host.name));
  }
  for (const spec::HostRequest& host : what.hosts) {
    const std::size_t index = *find(host.name);
    if (host.slots < slots_.given(index)) {
      say(fmt::format("host {}: {} must be returned within {:g} s ({})", host.name,
                      slots_text(host.slots), std::chrono::duration<double>(what.within).count(),
                      what.why));
      reclaim_slots(index, host.slots, id, what.within);
      continue;
    }
    leases_.demand(index, id);
    options_.scaler->drop(host.name);
  }
  revoke(id, what.within, what.why);
  return {};
}

// The newest members of the host leave as on a notice, as many as do not fit any more.
void ElasticController::reclaim_slots(std::size_t index, std::uint32_t slots,
                                      std::optional<lease::GrantId> id, base::Duration within) {
  reclaims_.begin(index, {id, slots, base::SystemClock().now() + within});
  change_slots(index, slots_.given(index) - slots, true);
  check_reclaim(index);
}

void ElasticController::check_reclaim(std::size_t index) {
  timers_.set(HostTimers::Kind::kReclaim, index, kReclaimPoll, [this, index] {
    if (agent_.ending()) return;
    switch (reclaims_.step(index, hosts_->members(index), slots_.given(index),
                           base::SystemClock().now())) {
      case SlotReclaims::Step::kWait:
        return check_reclaim(index);
      case SlotReclaims::Step::kReport:
        return on_slots_free(index);
      case SlotReclaims::Step::kReturn:
        return return_slots(index);
      case SlotReclaims::Step::kKeep:
        return keep_slots(index);
    }
  });
}

// Reports the free slots to the allocator that demanded them.
void ElasticController::on_slots_free(std::size_t index) {
  const SlotReclaim reclaim = reclaims_.end(index);
  change_slots(index, slots_.given(index));  // for good
  options_.scaler->lessen(hosts_->name(index), reclaim.slots);
  say(fmt::format("host {}: {} returned", hosts_->name(index), slots_text(reclaim.slots)));
  end_if_free(*reclaim.client, "the slots are free");
}

// Offers the free slots to the allocator; the job uses them again if it refuses.
void ElasticController::return_slots(std::size_t index) {
  const std::uint32_t slots = reclaims_.at(index).slots;
  options_.scaler->give_back(
      hosts_->name(index), slots, [this, index, slots](const base::Result<std::string>& printed) {
        if (agent_.ending()) return;
        reclaims_.end(index);
        change_slots(index, slots_.given(index) + (printed.ok() ? 0 : slots));
        const std::string what =
            fmt::format("{} of host {}", slots_text(slots), hosts_->name(index));
        if (printed.ok())
          return say(fmt::format("{}: {} returned", options_.scaler->title(), what));
        say(fmt::format("{} stay{} in the job: {}", what, slots == 1 ? "s" : "",
                        printed.status().message()));
      });
}

// The deadline has passed: the job keeps the slots, and the allocator gets an error.
void ElasticController::keep_slots(std::size_t index) {
  const SlotReclaim reclaim = reclaims_.end(index);
  change_slots(index, slots_.given(index) + reclaim.slots);
  const std::string what = fmt::format("host {}: its members did not leave {} in time",
                                       hosts_->name(index), slots_text(reclaim.slots));
  reclaim.client ? lease_server_.end(*reclaim.client, what, false) : say(what);
}

void ElasticController::change_slots(std::size_t index, std::uint32_t slots, bool for_now) {
  slots_.give(index, slots, for_now);
  if (hosts_->is_up(index)) tell_coordinator(node_up_of(index), hosts_->id(index));
}

std::vector<HostUse> ElasticController::uses() const {
  std::vector<HostUse> uses;
  for (std::size_t index = 0; index < hosts_->size(); ++index) {
    if (exits_.has_left(index)) continue;
    HostUse& use = uses.emplace_back();
    use.host = index;
    if (!hosts_->is_up(index)) use.state = HostUse::State::kLost;
    if (!exits_.stays(index)) use.state = HostUse::State::kDrains;
    use.slots = node_up_of(index).slots;
    use.given = slots_.given(index);
    use.members = hosts_->members(index);
    use.reclaimed = reclaims_.has(index);
    use.client = leases_.client(index);
    const std::string& name = hosts_->name(index);
    use.returnable = options_.scaler && options_.scaler->takes_back(name);
    use.divisible = options_.scaler && options_.scaler->takes_part(name);
  }
  return uses;
}

// The coordinator has accepted the new size. Requests missing slots, cancels requests that are not
// needed any more, and returns hosts without members to the allocator or joiner that provided them.
void ElasticController::on_resized(lease::GrantId id, std::uint32_t members) {
  wanted_ = 0;
  idle_timer_.cancel();
  if (agent_.ending()) return lease_server_.end(id, "");
  size_ = members + options_.spares;
  const std::uint32_t lacked = slots_lacked(uses(), size_);
  if (lacked == 0) {
    wanted_ = size_;
    poll_idle_hosts();
  }
  ask_for(lacked, id);
}

void ElasticController::ask_for(std::uint32_t slots, lease::GrantId id) {
  if (!options_.scaler || !options_.scaler->grows()) return lease_server_.end(id, "");
  std::vector<std::string> names;
  for (std::size_t index = 0; index < hosts_->size(); ++index) {
    if (find(hosts_->name(index)) == index) names.push_back(hosts_->name(index));
  }
  options_.scaler->ask_for(
      slots, std::move(names),
      [this, id, slots](std::uint32_t more, const base::Result<std::string>& said) {
        const char* title = options_.scaler->title();
        if (slots == 0) return lease_server_.end(id, "");
        if (more == 0)
          return lease_server_.end(id, fmt::format("{}: {} requested already", title,
                                                   slots_text(options_.scaler->expected())));
        const std::string what =
            fmt::format("{}: {} {} more{}", title, said.ok() ? "requested" : "could not request",
                        slots_text(more), said.ok() ? "" : ": " + said.status().message());
        say(what);
        lease_server_.end(id, what, said.ok());
      });
}

void ElasticController::poll_idle_hosts() {
  idle_timer_.expires_after(kIdlePoll);
  idle_timer_.async_wait([this](const boost::system::error_code& error) {
    if (error || agent_.ending() || wanted_ == 0) return;
    std::size_t running = 0;
    for (std::size_t index = 0; index < hosts_->size(); ++index) running += hosts_->members(index);
    if (running > wanted_) return poll_idle_hosts();
    release_idle_hosts();
    wanted_ = 0;
  });
}

// Returns what is not needed to the allocator or to the clients that have offered it.
void ElasticController::release_idle_hosts() {
  const IdleHosts idle = find_idle(uses(), wanted_);
  const base::TimePoint deadline = base::SystemClock().now() + options_.notice_grace;
  for (const std::size_t index : idle.whole) {
    const auto change = leases_.client(index) ? exits_.demand(index, deadline)
                                              : exits_.return_idle(index, deadline);
    say(fmt::format("host {} is no longer needed", hosts_->name(index)));
    if (change.moved) drain(index);
  }
  for (const auto& [index, slots] : idle.slots) {
    say(fmt::format("host {}: {} no longer needed", hosts_->name(index), slots_text(slots)));
    reclaim_slots(index, slots, std::nullopt, options_.notice_grace);
  }
}

// The job uses the host again if the allocator refuses it.
void ElasticController::return_host(std::size_t index) {
  const std::string name = hosts_->name(index);
  const spec::HostRequest host{.name = name, .slots = slots_.given(index)};
  options_.scaler->give_back(name, 0, [this, host](const base::Result<std::string>& printed) {
    if (agent_.ending()) return;
    if (printed.ok())
      return say(fmt::format("{}: host {} returned", options_.scaler->title(), host.name));
    say(fmt::format("host {} stays in the job: {}", host.name, printed.status().message()));
    add(host, options_.scaler->way());
  });
}

}  // namespace regroup::job
