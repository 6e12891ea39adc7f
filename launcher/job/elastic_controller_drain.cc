// How the controller drains hosts: their members leave at the end of their step, within a deadline,
// and then the host leaves the job, or stays in it suspended.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "base/clock.h"
#include "launcher/job/elastic_controller.h"
#include "launcher/process/due.h"

namespace regroup::job {
namespace {

constexpr std::chrono::milliseconds kDrainPoll{
    50};                                  // between checks whether a draining host has members left
constexpr std::size_t kMostSources = 16;  // of notices that have suspended a host

}  // namespace

// The coordinator gets a host with 0 slots: its members leave at the end of their step, and none is
// added.
void ElasticController::give_back(std::size_t index, base::Duration within,
                                  const std::string& why) {
  if (shorten_deadline(index, within)) return;
  say(fmt::format("host {} must be returned within {:g} s ({})", hosts_->name(index),
                  std::chrono::duration<double>(within).count(), why));
  drain(index, within);
}

// True: the host drains already, or has left. A further notice can only shorten its deadline.
bool ElasticController::shorten_deadline(std::size_t index, base::Duration within) {
  const auto found = host_states_.find(index);
  if (found == host_states_.end() || !(found->second.draining || found->second.left)) return false;
  HostState& state = found->second;
  const base::TimePoint deadline = base::SystemClock().now() + within;
  if (!state.left && deadline < state.deadline) {
    say(fmt::format("host {} must be returned sooner, within {:g} s", hosts_->name(index),
                    std::chrono::duration<double>(within).count()));
    state.deadline = deadline;
  }
  return !state.suspended;
}

// Drains the host but keeps its agent, which hears when the suspension is over. If the agent is
// lost meanwhile the host comes back with 0 slots, and its new agent gets the sources whose notices
// must end first.
void ElasticController::suspend(std::size_t index, base::Duration within,
                                const std::string& source) {
  if (shorten_deadline(index, within)) return;
  if (!draining(index)) {
    host_states_.try_emplace(index, agent_.loop()).first->second.suspended = true;
    give_back(index, within, "suspend of " + source);
  }
  auto& sources = host_states_.at(index).suspended_by;
  if (sources.size() < kMostSources) sources.insert(source);
}

void ElasticController::resume(std::size_t index, const std::string& why) {
  const auto state = host_states_.find(index);
  if (state == host_states_.end() || !state->second.suspended) return;
  state->second.suspended = state->second.draining = false;
  state->second.suspended_by.clear();
  state->second.timer.cancel();
  say(fmt::format("host {} may be used again ({})", hosts_->name(index), why));
  if (hosts_->is_up(index)) tell_coordinator(node_up_of(index), hosts_->id(index));
}

void ElasticController::drain(std::size_t index, base::Duration within) {
  HostState& state = host_states_.try_emplace(index, agent_.loop()).first->second;
  if (state.left || agent_.ending()) return;
  if (state.draining && !state.suspended) return;
  state.suspended = state.suspended && !state.draining;  // a suspended host is drained for good now
  const base::TimePoint deadline = base::SystemClock().now() + within;
  state.deadline = state.draining ? std::min(state.deadline, deadline) : deadline;
  state.draining = true;
  if (const auto backoff = backoffs_.find(index); backoff != backoffs_.end())
    backoff->second.timer.cancel();
  if (!hosts_->is_up(index)) return on_left(index, "was returned");
  tell_coordinator(node_up_of(index), hosts_->id(index));
  check_drained(index);
}

void ElasticController::check_drained(std::size_t index) {
  HostState& state = host_states_.at(index);
  state.timer.expires_after(kDrainPoll);
  state.timer.async_wait([this, index](const boost::system::error_code& error) {
    const HostState& state = host_states_.at(index);
    if (error || state.left || agent_.ending()) return;
    if (!state.draining || !process::is_due(state.timer)) return;
    if (hosts_->members(index) == 0) return state.suspended ? void() : hosts_->dismiss(index);
    if (base::SystemClock().now() < state.deadline) return check_drained(index);
    hosts_->give_up(hosts_->id(index),
                    {base::Code::kDeadlineExceeded,
                     fmt::format("host {}: {} of its members did not leave in time",
                                 hosts_->name(index), hosts_->members(index))});
  });
}

void ElasticController::on_left(std::size_t index, const std::string& how) {
  HostState& state = host_states_.try_emplace(index, agent_.loop()).first->second;
  if (std::exchange(state.left, true)) return;
  state.timer.cancel();
  tell_coordinator(
      proto::NodeLost{hosts_->id(index), fmt::format("host {} {}", hosts_->name(index), how)},
      hosts_->id(index));
  if (state.grant && all_left(*state.grant)) lease_server_.end(*state.grant, "the hosts are free");
  if (state.returning && !agent_.ending()) return_host(index);
}

}  // namespace regroup::job
