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

constexpr std::chrono::milliseconds kIdlePoll{200};  // between checks for idle hosts
constexpr std::chrono::milliseconds kReclaimPoll{
    50};  // between checks whether reclaimed slots are free

}  // namespace

// The allocation of the job has grown by new hosts, or by slots on hosts of the job.
base::Status ElasticController::on_growth(lease::GrantId id, const lease::LeaseOffer& offer) {
  if (!options_.scaler) return base::invalid_argument("the allocation of this job cannot grow");
  std::uint32_t slots = 0;
  for (const spec::HostRequest& host : offer.grant.hosts) {
    if (const auto index = find(host.name); index && draining(*index))
      return base::unavailable(fmt::format("host {} is being returned", host.name));
    slots += host.slots;
  }
  options_.scaler->grow(offer.grant.hosts);
  for (const spec::HostRequest& host : offer.grant.hosts) {
    const auto index = find(host.name);
    if (!index) {
      add(host, options_.scaler->way());
    } else {
      change_slots(*index, options_.slots.at(*index) + host.slots);
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
    const bool part = index && host.slots < options_.slots.at(*index);
    if (!index || !options_.scaler || !options_.scaler->has(host.name) ||
        (!part && !options_.scaler->takes_back(host.name)))
      return base::invalid_argument(fmt::format("host {}: this job cannot return it", host.name));
    if (draining(*index) || reclaims_.contains(*index))
      return base::unavailable(fmt::format("host {} is already being returned", host.name));
  }
  for (const spec::HostRequest& host : what.hosts) {
    const std::size_t index = *find(host.name);
    if (host.slots < options_.slots.at(index)) {
      say(fmt::format("host {}: {} must be returned within {:g} s ({})", host.name,
                      slots_text(host.slots), std::chrono::duration<double>(what.within).count(),
                      what.why));
      reclaim_slots(index, host.slots, id, what.within);
      continue;
    }
    host_states_.try_emplace(index, agent_.loop()).first->second.grant = id;
    options_.scaler->drop(host.name);
  }
  revoke(id, what.within, what.why);
  return {};
}

// The newest members of the host leave as on a notice, as many as do not fit any more. The slots
// count as "for now" until then (NodeUp::for_now), because the job keeps them if the members do not
// leave in time.
void ElasticController::reclaim_slots(std::size_t index, std::uint32_t slots,
                                      std::optional<lease::GrantId> id, base::Duration within) {
  SlotReclaim& reclaim = reclaims_.try_emplace(index, agent_.loop()).first->second;
  reclaim.grant = id;
  reclaim.slots = slots;
  reclaim.deadline = base::SystemClock().now() + within;
  change_slots(index, options_.slots.at(index) - slots);
  check_reclaim(index);
}

void ElasticController::check_reclaim(std::size_t index) {
  SlotReclaim& reclaim = reclaims_.at(index);
  reclaim.timer.expires_after(kReclaimPoll);
  reclaim.timer.async_wait([this, index](const boost::system::error_code& error) {
    if (error || agent_.ending()) return;
    const SlotReclaim& reclaim = reclaims_.at(index);
    const bool free = hosts_->members(index) <= options_.slots.at(index);
    if (free) return reclaim.grant ? on_slots_free(index) : return_slots(index);
    if (base::SystemClock().now() < reclaim.deadline) return check_reclaim(index);
    keep_slots(index);
  });
}

// Reports the free slots to the allocator that demanded them.
void ElasticController::on_slots_free(std::size_t index) {
  const auto done = reclaims_.extract(index);
  const SlotReclaim& reclaim = done.mapped();
  change_slots(index, options_.slots.at(index));  // for good
  options_.scaler->lessen(hosts_->name(index), reclaim.slots);
  say(fmt::format("host {}: {} returned", hosts_->name(index), slots_text(reclaim.slots)));
  if (all_left(*reclaim.grant)) lease_server_.end(*reclaim.grant, "the slots are free");
}

// Offers the free slots to the allocator; the job uses them again if it refuses.
void ElasticController::return_slots(std::size_t index) {
  const std::uint32_t slots = reclaims_.at(index).slots;
  options_.scaler->give_back(
      hosts_->name(index), slots, [this, index, slots](const base::Result<std::string>& printed) {
        if (agent_.ending()) return;
        reclaims_.erase(index);
        change_slots(index, options_.slots.at(index) + (printed.ok() ? 0 : slots));
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
  const auto done = reclaims_.extract(index);
  const SlotReclaim& reclaim = done.mapped();
  change_slots(index, options_.slots.at(index) + reclaim.slots);
  const std::string what = fmt::format("host {}: its members did not leave {} in time",
                                       hosts_->name(index), slots_text(reclaim.slots));
  reclaim.grant ? lease_server_.end(*reclaim.grant, what, false) : say(what);
}

void ElasticController::change_slots(std::size_t index, std::uint32_t slots) {
  options_.slots.at(index) = slots;
  if (hosts_->is_up(index)) tell_coordinator(node_up_of(index), hosts_->id(index));
}

// Slots of hosts that do not drain; `with_lost`: including lost hosts that may come back.
std::uint32_t ElasticController::room(bool with_lost) const {
  std::uint32_t slots = 0;
  for (std::size_t index = 0; index < hosts_->size(); ++index) {
    const auto state = host_states_.find(index);
    const bool left = state != host_states_.end() && state->second.left;
    if (!left && (with_lost || hosts_->is_up(index))) slots += node_up_of(index).slots;
  }
  return slots;
}

// The coordinator has accepted the new size. Requests missing slots, cancels requests that are not
// needed any more, and returns hosts without members to the allocator or joiner that provided them.
void ElasticController::on_resized(lease::GrantId id, std::uint32_t members) {
  wanted_ = 0;
  idle_timer_.cancel();
  if (agent_.ending()) return lease_server_.end(id, "");
  size_ = members + options_.spares;
  if (missing() == 0) {
    wanted_ = size_;
    poll_idle_hosts();
  }
  ask_for(missing(), id);
}

std::uint32_t ElasticController::missing() const { return size_ - std::min(size_, room(true)); }

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

// Returns hosts that are not needed, from the last one on. All hosts of a lease are returned
// together.
void ElasticController::release_idle_hosts() {
  std::uint32_t spare = room(false) - std::min(room(false), wanted_);
  for (std::size_t last = hosts_->size(); last-- > 0;) {
    const auto state = host_states_.find(last);
    const std::optional<lease::GrantId> grant =
        state != host_states_.end() ? state->second.grant : std::nullopt;
    std::vector<std::size_t> together;
    std::uint32_t slots = 0;
    bool idle = true;
    for (std::size_t index = 0; index < hosts_->size(); ++index) {
      const auto other = host_states_.find(index);
      if (index != last && (!grant || other == host_states_.end() || other->second.grant != grant))
        continue;
      if (other != host_states_.end() && other->second.left) continue;
      idle = idle && !draining(index) && !reclaims_.contains(index) && hosts_->is_up(index) &&
             hosts_->members(index) == 0;
      slots += node_up_of(index).slots;
      together.push_back(index);
    }
    if (!idle || together.empty() || slots > spare) continue;
    if (!grant && !(options_.scaler && options_.scaler->takes_back(hosts_->name(last)))) continue;
    spare -= slots;
    for (const std::size_t index : together) {
      host_states_.try_emplace(index, agent_.loop()).first->second.returning = !grant;
      say(fmt::format("host {} is no longer needed", hosts_->name(index)));
      drain(index, options_.notice_grace);
    }
  }
  release_idle_slots(spare);
}

// Returns slots of hosts that stay, from the last host on, where the allocator accepts a part of a
// host.
void ElasticController::release_idle_slots(std::uint32_t spare) {
  for (std::size_t index = hosts_->size(); spare > 0 && index-- > 0;) {
    const auto state = host_states_.find(index);
    const bool ours = state == host_states_.end() || !(state->second.grant || state->second.left);
    if (!ours || draining(index) || reclaims_.contains(index) || !hosts_->is_up(index)) continue;
    if (!options_.scaler || !options_.scaler->takes_part(hosts_->name(index))) continue;
    const std::uint32_t has = options_.slots.at(index);
    const auto kept =
        std::max<std::uint32_t>(1, static_cast<std::uint32_t>(hosts_->members(index)));
    const std::uint32_t slots = std::min(spare, has - std::min(has, kept));
    if (slots == 0) continue;
    spare -= slots;
    say(fmt::format("host {}: {} no longer needed", hosts_->name(index), slots_text(slots)));
    reclaim_slots(index, slots, std::nullopt, options_.notice_grace);
  }
}

// The job uses the host again if the allocator refuses it.
void ElasticController::return_host(std::size_t index) {
  const std::string name = hosts_->name(index);
  const spec::HostRequest host{.name = name, .slots = options_.slots.at(index)};
  options_.scaler->give_back(name, 0, [this, host](const base::Result<std::string>& printed) {
    if (agent_.ending()) return;
    if (printed.ok())
      return say(fmt::format("{}: host {} returned", options_.scaler->title(), host.name));
    say(fmt::format("host {} stays in the job: {}", host.name, printed.status().message()));
    add(host, options_.scaler->way());
  });
}

}  // namespace regroup::job
