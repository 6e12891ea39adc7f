// The hub's part in a job that grows and shrinks with its allocation.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <utility>

#include "launcher/cmd/elastic_hub.h"

namespace regroup::cmd {
namespace {

constexpr std::chrono::milliseconds kIdleLook{200};  // whether hosts have become idle
constexpr std::chrono::milliseconds kPartLook{50};   // whether slots that are wanted back are free

}  // namespace

// The allocation of the job has grown by slots of new hosts, or of those that it has.
core::Status ElasticHub::on_growth(GrantId id, const Offer& offer) {
  if (!options_.scaler) return core::invalid_argument("this job is in no allocation that grows");
  std::uint32_t slots = 0;
  for (const launcher::HostRequest& host : offer.grant.hosts) {
    if (const auto index = find(host.name); index && leaving(*index))
      return core::Status(core::Code::kUnavailable, fmt::format("host {} is on its way out", host.name));
    slots += host.slots;
  }
  options_.scaler->grow(offer.grant.hosts);
  for (const launcher::HostRequest& host : offer.grant.hosts) {
    const auto index = find(host.name);
    if (!index) {
      add(host, options_.scaler->way());
    } else {
      change_slots(*index, options_.slots.at(*index) + host.slots);
    }
  }
  const std::string what = fmt::format("{} gives {} more", options_.scaler->title(), slots_text(slots));
  say(what);
  lease_server_.end(id, what);
  return {};
}

// The allocator itself takes hosts of the job's own allocation back, or some of their slots.
core::Status ElasticHub::on_wanted(GrantId id, const Recall& what) {
  if (agent_.ending()) return core::Status(core::Code::kUnavailable, "the job is over");
  if (what.hosts.empty()) return core::invalid_argument("this recall names no host");
  std::set<std::string> named;
  for (const launcher::HostRequest& host : what.hosts) {
    if (!named.insert(host.name).second)
      return core::invalid_argument(fmt::format("this recall names host {} twice", host.name));
    const auto index = find(host.name);
    const bool part = index && host.slots < options_.slots.at(*index);
    if (!index || !options_.scaler || !options_.scaler->has(host.name) ||
        (!part && !options_.scaler->takes_back(host.name)))
      return core::invalid_argument(fmt::format("host {} is none that this job can give back", host.name));
    if (leaving(*index) || parts_.contains(*index))
      return core::Status(core::Code::kUnavailable,
                          fmt::format("host {} is on its way out already", host.name));
  }
  for (const launcher::HostRequest& host : what.hosts) {
    const std::size_t index = *find(host.name);
    if (host.slots < options_.slots.at(index)) {
      say(fmt::format("host {}: {} wanted back within {:g} s ({})", host.name, slots_text(host.slots),
                      std::chrono::duration<double>(what.within).count(), what.why));
      take_part(index, host.slots, id, what.within);
      continue;
    }
    guests_.try_emplace(index, agent_.loop()).first->second.grant = id;
    options_.scaler->drop(host.name);
  }
  recall(id, what.within, what.why);
  return {};
}

// The newest members there leave as on a notice, as many as do not fit any more. Until they have, it may be
// that the slots stay, and the job as large as it is.
void ElasticHub::take_part(std::size_t index, std::uint32_t slots, std::optional<GrantId> id,
                           core::Duration within) {
  Part& part = parts_.try_emplace(index, agent_.loop()).first->second;
  part.grant = id;
  part.slots = slots;
  part.deadline = core::SystemClock().now() + within;
  change_slots(index, options_.slots.at(index) - slots);
  look_whether_parted(index);
}

void ElasticHub::look_whether_parted(std::size_t index) {
  Part& part = parts_.at(index);
  part.timer.expires_after(kPartLook);
  part.timer.async_wait([this, index](const boost::system::error_code& error) {
    if (error || agent_.ending()) return;
    const Part& part = parts_.at(index);
    const bool free = hosts_->members(index) <= options_.slots.at(index);
    if (free) return part.grant ? on_parted(index) : return_part(index);
    if (core::SystemClock().now() < part.deadline) return look_whether_parted(index);
    keep_part(index);
  });
}

// The allocator, which has asked for them, is told.
void ElasticHub::on_parted(std::size_t index) {
  const auto parted = parts_.extract(index);
  const Part& part = parted.mapped();
  change_slots(index, options_.slots.at(index));  // for good
  options_.scaler->lessen(hosts_->name(index), part.slots);
  say(fmt::format("host {}: {} given back", hosts_->name(index), slots_text(part.slots)));
  if (all_left(*part.grant)) lease_server_.end(*part.grant, "the slots are free");
}

// It is asked. If it will not have them, the job may as well use them.
void ElasticHub::return_part(std::size_t index) {
  const std::uint32_t slots = parts_.at(index).slots;
  options_.scaler->give_back(
      hosts_->name(index), slots, [this, index, slots](const core::Result<std::string>& printed) {
        if (agent_.ending()) return;
        parts_.erase(index);
        change_slots(index, options_.slots.at(index) + (printed.ok() ? 0 : slots));
        const std::string what = fmt::format("{} of host {}", slots_text(slots), hosts_->name(index));
        if (printed.ok()) return say(fmt::format("{} has {} back", options_.scaler->title(), what));
        say(fmt::format("{} stay{} in the job: {}", what, slots == 1 ? "s" : "", printed.status().message()));
      });
}

// The allocator is told that it has them not.
void ElasticHub::keep_part(std::size_t index) {
  const auto kept = parts_.extract(index);
  const Part& part = kept.mapped();
  change_slots(index, options_.slots.at(index) + part.slots);
  const std::string what = fmt::format("host {}: its members did not leave {} in time", hosts_->name(index),
                                       slots_text(part.slots));
  part.grant ? lease_server_.end(*part.grant, what, false) : say(what);
}

void ElasticHub::change_slots(std::size_t index, std::uint32_t slots) {
  options_.slots.at(index) = slots;
  if (hosts_->is_up(index)) tell_coordinator(news_of(index), hosts_->id(index));
}

// Slots of hosts that stay, and of lost ones that may come back.
std::uint32_t ElasticHub::room(bool with_lost) const {
  std::uint32_t slots = 0;
  for (std::size_t index = 0; index < hosts_->size(); ++index) {
    const auto guest = guests_.find(index);
    const bool left = guest != guests_.end() && guest->second.left;
    if (!left && (with_lost || hosts_->is_up(index))) slots += news_of(index).slots;
  }
  return slots;
}

// The coordinator has agreed. Slots that are missing are asked for, and what is asked for in vain is
// cancelled; hosts on which nobody is left go back to whoever gave them.
void ElasticHub::on_resized(GrantId id, std::uint32_t members) {
  wanted_ = 0;
  idle_timer_.cancel();
  if (agent_.ending()) return lease_server_.end(id, "");
  size_ = members + options_.spares;
  if (missing() == 0) {
    wanted_ = size_;
    look_for_idle_hosts();
  }
  ask_for(missing(), id);
}

std::uint32_t ElasticHub::missing() const { return size_ - std::min(size_, room(true)); }

void ElasticHub::ask_for(std::uint32_t slots, GrantId id) {
  if (!options_.scaler || !options_.scaler->grows()) return lease_server_.end(id, "");
  std::vector<std::string> names;
  for (std::size_t index = 0; index < hosts_->size(); ++index) {
    if (find(hosts_->name(index)) == index) names.push_back(hosts_->name(index));
  }
  options_.scaler->ask_for(
      slots, std::move(names), [this, id, slots](std::uint32_t more, const core::Result<std::string>& said) {
        const char* title = options_.scaler->title();
        if (slots == 0) return lease_server_.end(id, "");
        if (more == 0)
          return lease_server_.end(id, fmt::format("{} has been asked for {} already", title,
                                                   slots_text(options_.scaler->expected())));
        const std::string what =
            fmt::format("{} {} asked for {} more{}", title, said.ok() ? "is" : "could not be",
                        slots_text(more), said.ok() ? "" : ": " + said.status().message());
        say(what);
        lease_server_.end(id, what, said.ok());
      });
}

void ElasticHub::look_for_idle_hosts() {
  idle_timer_.expires_after(kIdleLook);
  idle_timer_.async_wait([this](const boost::system::error_code& error) {
    if (error || agent_.ending() || wanted_ == 0) return;
    std::size_t running = 0;
    for (std::size_t index = 0; index < hosts_->size(); ++index) running += hosts_->members(index);
    if (running > wanted_) return look_for_idle_hosts();
    release_idle_hosts();
    wanted_ = 0;
  });
}

// From the last one, as many as are not needed. What a job that joined gave, it gets back as a whole.
void ElasticHub::release_idle_hosts() {
  std::uint32_t spare = room(false) - std::min(room(false), wanted_);
  for (std::size_t last = hosts_->size(); last-- > 0;) {
    const auto guest = guests_.find(last);
    const std::optional<GrantId> grant = guest != guests_.end() ? guest->second.grant : std::nullopt;
    std::vector<std::size_t> together;
    std::uint32_t slots = 0;
    bool idle = true;
    for (std::size_t index = 0; index < hosts_->size(); ++index) {
      const auto other = guests_.find(index);
      if (index != last && (!grant || other == guests_.end() || other->second.grant != grant)) continue;
      if (other != guests_.end() && other->second.left) continue;
      idle = idle && !leaving(index) && !parts_.contains(index) && hosts_->is_up(index) &&
             hosts_->members(index) == 0;
      slots += news_of(index).slots;
      together.push_back(index);
    }
    if (!idle || together.empty() || slots > spare) continue;
    if (!grant && !(options_.scaler && options_.scaler->takes_back(hosts_->name(last)))) continue;
    spare -= slots;
    for (const std::size_t index : together) {
      guests_.try_emplace(index, agent_.loop()).first->second.returning = !grant;
      say(fmt::format("host {} is not needed any more", hosts_->name(index)));
      vacate(index, options_.notice_grace);
    }
  }
  release_idle_slots(spare);
}

// Of hosts that stay, from the last one: where the allocator takes some of a host's slots.
void ElasticHub::release_idle_slots(std::uint32_t spare) {
  for (std::size_t index = hosts_->size(); spare > 0 && index-- > 0;) {
    const auto guest = guests_.find(index);
    const bool ours = guest == guests_.end() || !(guest->second.grant || guest->second.left);
    if (!ours || leaving(index) || parts_.contains(index) || !hosts_->is_up(index)) continue;
    if (!options_.scaler || !options_.scaler->takes_part(hosts_->name(index))) continue;
    const std::uint32_t has = options_.slots.at(index);
    const auto kept = std::max<std::uint32_t>(1, static_cast<std::uint32_t>(hosts_->members(index)));
    const std::uint32_t slots = std::min(spare, has - std::min(has, kept));
    if (slots == 0) continue;
    spare -= slots;
    say(fmt::format("host {}: {} not needed any more", hosts_->name(index), slots_text(slots)));
    take_part(index, slots, std::nullopt, options_.notice_grace);
  }
}

// If the allocator will not have it, the job may as well use it.
void ElasticHub::return_host(std::size_t index) {
  const std::string name = hosts_->name(index);
  const launcher::HostRequest host{.name = name, .slots = options_.slots.at(index)};
  options_.scaler->give_back(name, 0, [this, host](const core::Result<std::string>& printed) {
    if (agent_.ending()) return;
    if (printed.ok()) return say(fmt::format("{} has host {} back", options_.scaler->title(), host.name));
    say(fmt::format("host {} stays in the job: {}", host.name, printed.status().message()));
    add(host, options_.scaler->way());
  });
}

}  // namespace regroup::cmd
