// A slot whose members keep dying is not used for exponentially longer times; launches do not wait
// for it.
#include "membership/relaunch.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/printable.h"

namespace regroup::membership {

Relaunches::Relaunches(RelaunchPolicy policy, std::uint32_t min, std::uint32_t target)
    : policy_(policy), min_(min), slots_(target) {}

std::uint32_t Relaunches::free_slots(base::TimePoint at) const {
  return static_cast<std::uint32_t>(std::count_if(
      slots_.begin(), slots_.end(), [at](const Slot& slot) { return slot.free_at <= at; }));
}

std::uint32_t Relaunches::launch(base::TimePoint now, std::uint32_t most) {
  if (!used_.empty()) ++restarts_;
  used_.clear();
  launched_at_ = now;
  for (std::uint32_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot].free_at <= now && used_.size() < most) used_.push_back(slot);
  }
  return launched();
}

void Relaunches::adopt(base::TimePoint now, std::uint32_t members) {
  launched_at_ = now;
  used_.resize(std::min<std::size_t>(members, slots_.size()));
  std::iota(used_.begin(), used_.end(), 0U);
}

void Relaunches::put_off(base::TimePoint now, Slot& slot) const {
  base::Duration wait = policy_.back_off;
  for (std::uint32_t i = 0; i < slot.failures && wait < policy_.longest_back_off; ++i) wait *= 2;
  ++slot.failures;
  slot.free_at = now + std::min(wait, policy_.longest_back_off);
}

Relaunches::Verdict Relaunches::on_failure(base::TimePoint now, std::uint32_t rank,
                                           std::int32_t status, const std::string& what,
                                           const proto::Failure& failure) {
  same_ =
      failure.known() && failure.kind == last_.kind && failure.place == last_.place ? same_ + 1 : 1;
  last_ = failure;
  if (failure.known() && same_ >= policy_.most_same) {
    return {
        .exit_code = status,
        .sentence = fmt::format(
            "{}: {} launches in a row failed in the same way: {}", what, same_,
            failure.place.empty() ? failure.message : failure.message + " at " + failure.place)};
  }
  if (now - launched_at_ >= policy_.progress) {
    without_progress_ = 0;
    for (Slot& slot : slots_) slot.failures = 0;
  } else if (++without_progress_ >= policy_.most_without_progress) {
    return {.exit_code = kNoProgress,
            .sentence = fmt::format(
                "{}: no progress, {} launches in a row have lived for less than {} s", what,
                without_progress_,
                std::chrono::duration_cast<std::chrono::seconds>(policy_.progress).count())};
  }
  if (restarts_ >= policy_.max_restarts) {
    return {.exit_code = status,
            .sentence = restarts_ == 0 ? what
                                       : fmt::format("{}; restarted {} already (--max-restarts)",
                                                     what, base::counted(restarts_, "time"))};
  }
  if (rank < used_.size()) put_off(now, slots_[used_[rank]]);
  Verdict verdict{.again = true, .due = now};
  if (free_slots(now) < min_) {
    std::vector<base::TimePoint> free;
    for (const Slot& slot : slots_) free.push_back(slot.free_at);
    std::nth_element(free.begin(), free.begin() + (min_ - 1), free.end());
    verdict.due = free[min_ - 1];
  }
  verdict.members = free_slots(verdict.due);
  const auto wait = std::chrono::duration<double>(verdict.due - now).count();
  verdict.sentence =
      fmt::format("{}: relaunch with {}{}{} (attempt {} of {}{})", what,
                  base::counted(verdict.members, "member"),
                  verdict.members == launched() ? "" : fmt::format(" instead of {}", launched()),
                  wait > 0 ? fmt::format(" in {:.1f} s", wait) : "", restarts_ + std::uint64_t{2},
                  policy_.max_restarts + std::uint64_t{1},
                  restarts_ == 0 ? "; with --max-restarts 0 the first failure ends the job" : "");
  return verdict;
}

}  // namespace regroup::membership
