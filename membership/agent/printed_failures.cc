// Failures are equal if kind, location and traceback are; messages may differ. Two errors in one
// helper function have different tracebacks.
#include "membership/agent/printed_failures.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace regroup::membership {
namespace {

constexpr std::size_t kMost = 16;

}  // namespace

const PrintedFailures::Printed* PrintedFailures::printed(const proto::Failure& failure) const {
  const auto same = std::ranges::find_if(printed_, [&](const Printed& one) {
    const proto::Failure& other = one.failure;
    return other.kind == failure.kind && other.place == failure.place &&
           other.trace == failure.trace;
  });
  return same == printed_.end() ? nullptr : &*same;
}

void PrintedFailures::add(Printed failure) {
  printed_.push_back(std::move(failure));
  if (printed_.size() > kMost) printed_.pop_front();
}

void PrintedFailures::restore(proto::Failure failure) {
  if (printed(failure) == nullptr) add({std::move(failure), true});
}

proto::Reply PrintedFailures::answer(const proto::Failure& failure) {
  if (failure.final) final_.insert(failure.member);
  if (final_.contains(failure.member)) return {false, ""};
  if (const Printed* same = printed(failure)) {
    return {false,
            fmt::format(
                "regroup: member {} ended by {}{}{}, as member {}{} did: its traceback is above",
                failure.member, failure.message.empty() ? failure.kind : failure.message,
                failure.place.empty() ? "" : " at ", failure.place, same->failure.member,
                same->earlier ? " of an earlier launch" : "")};
  }
  add({failure});
  return {};
}

}  // namespace regroup::membership
