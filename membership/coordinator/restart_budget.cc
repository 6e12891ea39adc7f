// Two failures are equal if exception and location are, whatever progress lies between them. If
// only exit statuses are known, they are equal only if the job made no step between them.
#include "membership/coordinator/restart_budget.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <utility>

namespace regroup::membership {
namespace {

constexpr std::array kOfProgram{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
constexpr std::size_t kMostNames = 8;
constexpr base::Duration kFirst = std::chrono::milliseconds(100);
constexpr base::Duration kLongest = std::chrono::seconds(10);

bool of_program(std::int32_t signal) {
  return std::ranges::find(kOfProgram, signal) != kOfProgram.end();
}

bool is_used(const std::vector<bool>& used, std::uint32_t slot) {
  return slot < used.size() && used[slot];
}

base::Duration delay_after(std::uint32_t failures) {
  return std::min<base::Duration>(kFirst * (1 << std::min(failures, 10U)), kLongest);
}

}  // namespace

// A shell between the agent and the member reports the same status.
bool ended_from_outside(std::int32_t status) {
  return status > 128 && status < 128 + 32 && !of_program(status - 128);
}

std::string what_of(const proto::Failure& failure, const std::string& cause) {
  if (!failure.known()) return cause;
  const std::string& what = failure.message.empty() ? failure.kind : failure.message;
  return failure.place.empty() ? what : fmt::format("{} at {}", what, failure.place);
}

FailureStreak passed_on(FailureStreak row) {
  if (!row.failure.known() || row.failure.kind == proto::kUnreadableKind) return {};
  row.passed_on = true;
  return row;
}

RestartBudget::Verdict RestartBudget::on_ending(base::TimePoint now, const Ending& ending,
                                                const std::set<std::uint32_t>& others) {
  Slot& slot = slots_[ending.slot];
  const bool well = ending.lived >= kWell && ending.steps >= kWellSteps;
  if (well || (ending.outside && ending.steps > 0)) {
    if (well) row_ = {};
    // Repeated early ends cost the others a regroup each, so the back-off grows.
    const std::uint32_t endings = ending.lived >= kLongest ? 0 : slot.endings + 1;
    const base::TimePoint due = endings == 0 ? slot.free_at : now + delay_after(endings - 1);
    slot = {.endings = endings, .free_at = std::max(slot.free_at, due)};
    return {};
  }
  const std::string failure =
      ending.failure.known() ? fmt::format("{} at {}", ending.failure.kind, ending.failure.place)
                             : ending.cause;
  ++slot.failures, ++slot.endings;
  slot.unready = ending.ready ? 0 : slot.unready + 1;
  slot.same = failure == slot.last ? slot.same + 1 : 1;
  slot.last = failure;
  slot.free_at = std::max(slot.free_at, now + delay_after(slot.endings - 1));
  if (!ending.outside) lengthen_row(ending, failure);
  if (!ending.outside && meets_all(others)) return {What::kEndJob, ends_why(ending)};
  const bool same = slot.same >= kInARow && ending.failure.known();
  const bool spared = ending.outside && ending.learning;  // no member waits for it
  if (!same && slot.unready < kInARow && (spared || slot.failures <= policy_.max_restarts))
    return {};
  slot.disabled = true;
  const std::string last = what_of(ending.failure, ending.cause);
  if (slot.unready >= kInARow)
    return {What::kDisableSlot,
            fmt::format("slot {}: {} members in a row ended before they were ready, the last: {}",
                        ending.slot, slot.unready, last)};
  if (same)
    return {What::kDisableSlot,
            fmt::format("slot {}: {} members in a row failed in the same way: {}", ending.slot,
                        slot.same, last)};
  return {What::kDisableSlot,
          fmt::format(
              "slot {}: its member was replaced {} without progress (--max-restarts), the last: {}",
              ending.slot,
              policy_.max_restarts == 1 ? "once" : fmt::format("{} times", policy_.max_restarts),
              last)};
}

void RestartBudget::lengthen_row(const Ending& ending, const std::string& what) {
  const bool same = what == row_.what && (ending.failure.known() || ending.at == row_.at);
  if (!same) row_ = {.what = what};
  if (std::exchange(row_.passed_on, false)) ++row_.launches;
  row_.failure = ending.failure;
  row_.at = ending.at;
  if (row_.slots.size() < kMostSlots) row_.slots.insert(ending.slot);
  row_.members.push_back(ending.member);
  if (row_.members.size() > kMostNames) row_.members.pop_front();
  ++row_.length;
}

bool RestartBudget::meets_all(const std::set<std::uint32_t>& others) const {
  if (row_.length < kInARow) return false;
  return row_.slots.size() >= kMostSlots || std::ranges::includes(row_.slots, others);
}

std::string RestartBudget::ends_why(const Ending& ending) const {
  const std::string last = what_of(ending.failure, ending.cause);
  if (row_.launches > 1)
    return fmt::format("{} members in a row, in {} launches of the job, failed in the same way: {}",
                       row_.length, row_.launches, last);
  return fmt::format("{} members in a row ({}{}) failed in the same way: {}", row_.length,
                     row_.length > row_.members.size() ? "..., " : "",
                     fmt::join(row_.members, ", "), last);
}

void RestartBudget::put_off(base::TimePoint now, std::uint32_t number, bool survivors_go_on) {
  Slot& slot = slots_[number];
  const base::Duration least = survivors_go_on ? kSurvivorsFirst : base::Duration::zero();
  slot.free_at = now + std::max(delay_after(slot.endings), least);
}

std::optional<std::uint32_t> RestartBudget::next(base::TimePoint now, std::uint32_t slots,
                                                 const std::vector<bool>& used) const {
  for (std::uint32_t number = 0; number < slots; ++number) {
    if (is_used(used, number)) continue;
    const auto known = slots_.find(number);
    if (known == slots_.end() || (!known->second.disabled && known->second.free_at <= now))
      return number;
  }
  return std::nullopt;
}

bool RestartBudget::any_left(std::uint32_t slots, const std::vector<bool>& used) const {
  for (std::uint32_t number = 0; number < slots; ++number) {
    const auto known = slots_.find(number);
    if (!is_used(used, number) && (known == slots_.end() || !known->second.disabled)) return true;
  }
  return false;
}

std::optional<base::TimePoint> RestartBudget::next_change(base::TimePoint now) const {
  std::optional<base::TimePoint> next;
  for (const auto& [number, slot] : slots_) {
    if (!slot.disabled && slot.free_at > now && (!next || slot.free_at < *next))
      next = slot.free_at;
  }
  return next;
}

}  // namespace regroup::membership
