// The stages of a host between its place in the job and its end.
#include "launcher/job/host_exits.h"

#include <algorithm>
#include <array>

namespace regroup::job {
namespace {

using Stage = HostStage;
using Event = HostEvent;

struct Edge {
  Stage from;
  Event event;
  Stage to;
};
constexpr std::array kEdges{
    Edge{Stage::kStays, Event::kDemanded, Stage::kDraining},
    Edge{Stage::kStays, Event::kSuspended, Stage::kSuspended},
    Edge{Stage::kStays, Event::kUnneeded, Stage::kReturning},
    Edge{Stage::kStays, Event::kEnded, Stage::kLeft},
    Edge{Stage::kSuspended, Event::kDemanded, Stage::kDraining},
    Edge{Stage::kSuspended, Event::kResumed, Stage::kStays},
    Edge{Stage::kSuspended, Event::kEnded, Stage::kLeft},
    Edge{Stage::kDraining, Event::kLost, Stage::kLeft},
    Edge{Stage::kDraining, Event::kEnded, Stage::kLeft},
    Edge{Stage::kReturning, Event::kLost, Stage::kLeft},
    Edge{Stage::kReturning, Event::kEnded, Stage::kLeft},
};

}  // namespace

std::optional<HostStage> next_stage(HostStage stage, HostEvent event) {
  const auto edge = std::ranges::find_if(
      kEdges, [&](const Edge& each) { return each.from == stage && each.event == event; });
  return edge == kEdges.end() ? std::nullopt : std::optional(edge->to);
}

HostStage HostExits::stage(std::size_t host) const {
  const auto found = hosts_.find(host);
  return found == hosts_.end() ? HostStage::kStays : found->second.stage;
}

std::vector<std::string> HostExits::suspended_by(std::size_t host) const {
  const auto found = hosts_.find(host);
  if (found == hosts_.end()) return {};
  return {found->second.suspended_by.begin(), found->second.suspended_by.end()};
}

HostExits::Change HostExits::move(std::size_t host, HostEvent event, base::TimePoint deadline) {
  Host& state = hosts_[host];
  const auto next = next_stage(state.stage, event);
  const bool drains = state.stage != Stage::kStays && state.stage != Stage::kLeft;
  const bool sooner = drains && deadline < state.deadline;
  if (sooner || state.stage == Stage::kStays) state.deadline = deadline;
  if (next) state.stage = *next;
  if (state.stage != Stage::kSuspended) state.suspended_by.clear();
  return {.sooner = sooner, .moved = next.has_value()};
}

HostExits::Change HostExits::demand(std::size_t host, base::TimePoint deadline) {
  return move(host, Event::kDemanded, deadline);
}

HostExits::Change HostExits::return_idle(std::size_t host, base::TimePoint deadline) {
  return move(host, Event::kUnneeded, deadline);
}

HostExits::Change HostExits::suspend(std::size_t host, base::TimePoint deadline,
                                     const std::string& source) {
  const Change change = move(host, Event::kSuspended, deadline);
  Host& state = hosts_[host];
  if (state.stage == Stage::kSuspended && state.suspended_by.size() < kMostSources)
    state.suspended_by.insert(source);
  return change;
}

bool HostExits::resume(std::size_t host) {
  const auto next = next_stage(stage(host), Event::kResumed);
  if (next) hosts_[host] = {.stage = *next};
  return next.has_value();
}

std::optional<HostStage> HostExits::leave(std::size_t host, HostEvent event) {
  const HostStage before = stage(host);
  const auto next = next_stage(before, event);
  if (next) hosts_[host].stage = *next;
  return next ? std::optional(before) : std::nullopt;
}

HostExits::Step HostExits::step(std::size_t host, std::size_t members, base::TimePoint now) const {
  if (stays(host) || has_left(host)) return Step::kNothing;
  if (members == 0) return suspended(host) ? Step::kNothing : Step::kDismiss;
  return now < hosts_.at(host).deadline ? Step::kWait : Step::kGiveUp;
}

}  // namespace regroup::job
