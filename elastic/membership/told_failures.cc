// Equal are failures of the same kind at the same place by the same calls: two errors of one helper function
// have different tracebacks. Their messages may differ.
#include "elastic/membership/told_failures.h"

#include <fmt/format.h>

#include <algorithm>

namespace regroup::membership {
namespace {

constexpr std::size_t kMost = 16;

}  // namespace

core::Reply ToldFailures::answer(const core::Failure& failure) {
  if (failure.final) final_.insert(failure.member);
  if (final_.contains(failure.member)) return {false, ""};
  const auto same = std::ranges::find_if(printed_, [&](const core::Failure& other) {
    return other.kind == failure.kind && other.place == failure.place && other.trace == failure.trace;
  });
  if (same != printed_.end()) {
    return {false, fmt::format("regroup: member {} ended by {}{}{}, as member {} did: its traceback is above",
                               failure.member, failure.message.empty() ? failure.kind : failure.message,
                               failure.place.empty() ? "" : " at ", failure.place, same->member)};
  }
  printed_.push_back(failure);
  if (printed_.size() > kMost) printed_.pop_front();
  return {};
}

}  // namespace regroup::membership
