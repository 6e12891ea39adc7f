// Performs what find_idle() and SlotReclaims decide. Slots are missing for now until the allocator
// has taken them, so that the job does not become smaller for slots that it keeps.
#include "launcher/job/own_allocation.h"

#include <fmt/format.h>

#include <chrono>
#include <set>
#include <utility>

namespace regroup::job {
namespace {

constexpr std::chrono::milliseconds kIdlePoll{200};    // between checks for idle hosts
constexpr std::chrono::milliseconds kReclaimPoll{50};  // between checks for free slots

}  // namespace

OwnAllocation::OwnAllocation(boost::asio::io_context& loop, ElasticHosts& hosts,
                             const HostLeases& leases, Options options, Events events)
    : hosts_(hosts),
      links_(hosts.links()),
      leases_(leases),
      options_(std::move(options)),
      events_(std::move(events)),
      timers_(loop),
      idle_timer_(loop) {}

void OwnAllocation::start() {
  if (options_.scaler) options_.scaler->listen(events_.said);
}

OwnAllocation::Origin OwnAllocation::arrive(const std::string& request) {
  if (!options_.scaler) return Origin::kOthers;
  const bool pending = options_.scaler->asked_for(request);
  if (!options_.scaler->arrived(request)) return Origin::kCancelled;
  return pending ? Origin::kRequest : Origin::kOthers;
}

void OwnAllocation::cancel_surplus() {
  if (options_.scaler && size_ > 0) options_.scaler->cancel_beyond(slots_lacked(uses(), size_));
}

base::Result<std::string> OwnAllocation::grow(const std::vector<spec::HostRequest>& more) {
  if (!options_.scaler) return base::invalid_argument("the allocation of this job cannot grow");
  std::uint32_t slots = 0;
  for (const spec::HostRequest& host : more) {
    if (const auto index = hosts_.find(host.name); index && !hosts_.stays(*index))
      return base::unavailable(fmt::format("host {} is being returned", host.name));
    slots += host.slots;
  }
  options_.scaler->grow(more);
  for (const spec::HostRequest& host : more) {
    const auto index = hosts_.find(host.name);
    if (!index) {
      hosts_.add(host, access_to(host, options_.scaler->way()));
    } else {
      hosts_.set_slots(*index, hosts_.given_slots(*index) + host.slots, reclaims_.has(*index));
    }
  }
  std::string what = fmt::format("{} grants {} more", options_.scaler->title(), slots_text(slots));
  events_.said(what);
  return what;
}

base::Status OwnAllocation::check(const lease::LeaseRevoke& what) const {
  if (what.hosts.empty()) return base::invalid_argument("LeaseRevoke: expected at least one host");
  std::set<std::string> named;
  for (const spec::HostRequest& host : what.hosts) {
    if (!named.insert(host.name).second)
      return base::invalid_argument(fmt::format("LeaseRevoke: host {} is listed twice", host.name));
    const auto index = hosts_.find(host.name);
    const bool part = index && host.slots < hosts_.given_slots(*index);
    if (!index || !options_.scaler || !options_.scaler->has(host.name) ||
        (!part && !options_.scaler->takes_back(host.name)))
      return base::invalid_argument(fmt::format("host {}: this job cannot return it", host.name));
    if (!hosts_.stays(*index) || reclaims_.has(*index))
      return base::unavailable(fmt::format("host {} is already being returned", host.name));
  }
  return {};
}

base::Result<std::vector<std::size_t>> OwnAllocation::demand(lease::GrantId client,
                                                             const lease::LeaseRevoke& what) {
  if (base::Status status = check(what); !status.ok()) return status;
  std::vector<std::size_t> whole;
  for (const spec::HostRequest& host : what.hosts) {
    const std::size_t index = *hosts_.find(host.name);
    if (host.slots < hosts_.given_slots(index)) {
      events_.said(fmt::format("host {}: {} must be returned within {:g} s ({})", host.name,
                               slots_text(host.slots),
                               std::chrono::duration<double>(what.within).count(), what.why));
      reclaim(index, host.slots, client, what.within);
      continue;
    }
    options_.scaler->drop(host.name);
    whole.push_back(index);
  }
  return whole;
}

// The newest members of the host leave as on a notice, as many as do not fit any more.
void OwnAllocation::reclaim(std::size_t host, std::uint32_t slots,
                            std::optional<lease::GrantId> client, base::Duration within) {
  reclaims_.begin(host, {client, slots, base::SystemClock().now() + within});
  hosts_.set_slots(host, hosts_.given_slots(host) - slots, true);
  poll_reclaim(host);
}

void OwnAllocation::poll_reclaim(std::size_t host) {
  timers_.set(HostTimers::Kind::kReclaim, host, kReclaimPoll, [this, host] {
    if (events_.ending()) return;
    switch (reclaims_.step(host, links_.members(host), hosts_.given_slots(host),
                           base::SystemClock().now())) {
      case SlotReclaims::Step::kWait:
        return poll_reclaim(host);
      case SlotReclaims::Step::kReport:
        return report_slots(host);
      case SlotReclaims::Step::kReturn:
        return return_slots(host);
      case SlotReclaims::Step::kKeep:
        return keep_slots(host);
    }
  });
}

// The slots are free: the allocator that has demanded them waits for that.
void OwnAllocation::report_slots(std::size_t host) {
  const SlotReclaim reclaim = reclaims_.end(host);
  hosts_.set_slots(host, hosts_.given_slots(host));  // for good
  options_.scaler->lessen(links_.name(host), reclaim.slots);
  events_.said(fmt::format("host {}: {} returned", links_.name(host), slots_text(reclaim.slots)));
  events_.freed(*reclaim.client);
}

// Offers the free slots to the allocator; the job uses them again if it refuses.
void OwnAllocation::return_slots(std::size_t host) {
  const std::uint32_t slots = reclaims_.at(host).slots;
  options_.scaler->give_back(
      links_.name(host), slots, [this, host, slots](const base::Result<std::string>& printed) {
        if (events_.ending()) return;
        reclaims_.end(host);
        hosts_.set_slots(host, hosts_.given_slots(host) + (printed.ok() ? 0 : slots));
        const std::string what = fmt::format("{} of host {}", slots_text(slots), links_.name(host));
        if (printed.ok())
          return events_.said(fmt::format("{}: {} returned", options_.scaler->title(), what));
        events_.said(fmt::format("{} stay{} in the job: {}", what, slots == 1 ? "s" : "",
                                 printed.status().message()));
      });
}

// The deadline has passed: the job keeps the slots, and the allocator gets an error.
void OwnAllocation::keep_slots(std::size_t host) {
  const SlotReclaim reclaim = reclaims_.end(host);
  hosts_.set_slots(host, hosts_.given_slots(host) + reclaim.slots);
  const std::string what = fmt::format("host {}: its members did not leave {} in time",
                                       links_.name(host), slots_text(reclaim.slots));
  reclaim.client ? events_.answered(*reclaim.client, what, false) : events_.said(what);
}

void OwnAllocation::resize(lease::GrantId client, std::uint32_t members) {
  wanted_ = 0;
  idle_timer_.cancel();
  if (events_.ending()) return events_.answered(client, "", true);
  size_ = members + options_.spares;
  const std::uint32_t lacked = slots_lacked(uses(), size_);
  if (lacked == 0) {
    wanted_ = size_;
    poll_idle();
  }
  ask_for(lacked, client);
}

void OwnAllocation::ask_for(std::uint32_t slots, lease::GrantId client) {
  if (!options_.scaler || !options_.scaler->grows()) return events_.answered(client, "", true);
  std::vector<std::string> names;
  for (std::size_t host = 0; host < links_.size(); ++host) {
    if (hosts_.find(links_.name(host)) == host) names.push_back(links_.name(host));
  }
  options_.scaler->ask_for(
      slots, std::move(names),
      [this, client, slots](std::uint32_t more, const base::Result<std::string>& said) {
        const char* title = options_.scaler->title();
        if (slots == 0) return events_.answered(client, "", true);
        if (more == 0)
          return events_.answered(client,
                                  fmt::format("{}: {} requested already", title,
                                              slots_text(options_.scaler->expected())),
                                  true);
        const std::string what =
            fmt::format("{}: {} {} more{}", title, said.ok() ? "requested" : "could not request",
                        slots_text(more), said.ok() ? "" : ": " + said.status().message());
        events_.said(what);
        events_.answered(client, what, said.ok());
      });
}

std::vector<HostUse> OwnAllocation::uses() const {
  std::vector<HostUse> uses;
  for (std::size_t host = 0; host < links_.size(); ++host) {
    if (hosts_.stage(host) == HostStage::kLeft) continue;
    HostUse& use = uses.emplace_back();
    use.host = host;
    if (!links_.is_up(host)) use.state = HostUse::State::kLost;
    if (!hosts_.stays(host)) use.state = HostUse::State::kDrains;
    use.slots = hosts_.node_up(host).slots;
    use.given = hosts_.given_slots(host);
    use.members = links_.members(host);
    use.reclaimed = reclaims_.has(host);
    use.client = leases_.client(host);
    const std::string& name = links_.name(host);
    use.returnable = options_.scaler && options_.scaler->takes_back(name);
    use.divisible = options_.scaler && options_.scaler->takes_part(name);
  }
  return uses;
}

// Returns what is not needed as soon as no more members run than are wanted.
void OwnAllocation::poll_idle() {
  idle_timer_.expires_after(kIdlePoll);
  idle_timer_.async_wait([this](const boost::system::error_code& error) {
    if (error || events_.ending() || wanted_ == 0) return;
    if (links_.running() > wanted_) return poll_idle();
    release_idle();
    wanted_ = 0;
  });
}

// To the allocator, or to the clients that have offered the hosts.
void OwnAllocation::release_idle() {
  const IdleHosts idle = find_idle(uses(), wanted_);
  for (const std::size_t host : idle.whole)
    hosts_.return_idle(host, options_.notice_grace, !leases_.client(host));
  for (const auto& [host, slots] : idle.slots) {
    events_.said(fmt::format("host {}: {} no longer needed", links_.name(host), slots_text(slots)));
    reclaim(host, slots, std::nullopt, options_.notice_grace);
  }
}

void OwnAllocation::return_host(std::size_t index) {
  const spec::HostRequest host{.name = links_.name(index), .slots = hosts_.given_slots(index)};
  options_.scaler->give_back(host.name, 0, [this, host](const base::Result<std::string>& printed) {
    if (events_.ending()) return;
    if (printed.ok())
      return events_.said(fmt::format("{}: host {} returned", options_.scaler->title(), host.name));
    events_.said(
        fmt::format("host {} stays in the job: {}", host.name, printed.status().message()));
    hosts_.add(host, access_to(host, options_.scaler->way()));
  });
}

}  // namespace regroup::job
