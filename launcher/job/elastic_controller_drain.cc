// How the controller drains hosts: their members leave at the end of their step, within a deadline,
// and then the host leaves the job, or stays in it suspended.
#include <fmt/format.h>

#include <chrono>
#include <string>

#include "base/clock.h"
#include "launcher/job/elastic_controller.h"

namespace regroup::job {
namespace {

// Between checks whether a draining host has members left.
constexpr std::chrono::milliseconds kDrainPoll{50};

}  // namespace

void ElasticController::give_back(std::size_t index, base::Duration within,
                                  const std::string& why) {
  if (agent_.ending()) return;
  const auto change = exits_.demand(index, base::SystemClock().now() + within);
  say_change(index, change, within, why);
  if (change.moved) drain(index);
}

// Drains the host but keeps its agent, which hears when the suspension is over. If the agent is
// lost meanwhile the host comes back with 0 slots, and its new agent gets the sources whose notices
// must end first.
void ElasticController::suspend(std::size_t index, base::Duration within,
                                const std::string& source) {
  if (agent_.ending()) return;
  const auto change = exits_.suspend(index, base::SystemClock().now() + within, source);
  say_change(index, change, within, "suspend of " + source);
  if (change.moved) drain(index);
}

void ElasticController::say_change(std::size_t index, const HostExits::Change& change,
                                   base::Duration within, const std::string& why) {
  const double seconds = std::chrono::duration<double>(within).count();
  const std::string& name = hosts_->name(index);
  if (change.sooner)
    say(fmt::format("host {} must be returned sooner, within {:g} s", name, seconds));
  if (change.moved)
    say(fmt::format("host {} must be returned within {:g} s ({})", name, seconds, why));
}

void ElasticController::resume(std::size_t index, const std::string& why) {
  if (!exits_.resume(index)) return;
  timers_.cancel(HostTimers::Kind::kDrain, index);
  say(fmt::format("host {} may be used again ({})", hosts_->name(index), why));
  if (hosts_->is_up(index)) tell_coordinator(node_up_of(index), hosts_->id(index));
}

// The coordinator gets a host with 0 slots: its members leave at the end of their step, and none is
// added.
void ElasticController::drain(std::size_t index) {
  timers_.cancel(HostTimers::Kind::kRestart, index);
  if (!hosts_->is_up(index)) return leave(index, HostEvent::kEnded);
  tell_coordinator(node_up_of(index), hosts_->id(index));
  check_drained(index);
}

void ElasticController::check_drained(std::size_t index) {
  timers_.set(HostTimers::Kind::kDrain, index, kDrainPoll, [this, index] {
    if (agent_.ending()) return;
    const std::size_t members = hosts_->members(index);
    switch (exits_.step(index, members, base::SystemClock().now())) {
      case HostExits::Step::kNothing:
        return;
      case HostExits::Step::kWait:
        return check_drained(index);
      case HostExits::Step::kDismiss:
        return hosts_->dismiss(index);
      case HostExits::Step::kGiveUp:
        return hosts_->give_up(hosts_->id(index),
                               {base::Code::kDeadlineExceeded,
                                fmt::format("host {}: {} of its members did not leave in time",
                                            hosts_->name(index), members)});
    }
  });
}

void ElasticController::leave(std::size_t index, HostEvent event) {
  const auto before = exits_.leave(index, event);
  if (!before) return;
  timers_.cancel(HostTimers::Kind::kDrain, index);
  tell_coordinator(
      proto::NodeLost{hosts_->id(index),
                      fmt::format("host {} {}", hosts_->name(index),
                                  event == HostEvent::kLost ? "is lost" : "was returned")},
      hosts_->id(index));
  if (const auto client = leases_.leave(index)) end_if_free(*client, "the hosts are free");
  if (*before == HostStage::kReturning && !agent_.ending()) return_host(index);
}

}  // namespace regroup::job
