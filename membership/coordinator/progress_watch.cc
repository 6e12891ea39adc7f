// Orders the members by their progress in the step: the others wait for the last ones.
#include "membership/coordinator/progress_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <utility>

namespace regroup::membership {
namespace {

constexpr std::size_t kSteps = 31;         // of whose durations the median is taken
constexpr std::size_t kMeasured = 3;       // measured steps of the job, at least, for Stall::sure
constexpr unsigned kTaken = 2;             // completed steps of a member, at least, for Stall::sure
constexpr int kMedians = 10;               // without progress of any member
constexpr int kAgainAfter = 5;             // times the silence before the first report
constexpr std::chrono::seconds kHeard(3);  // slots are queried each second
// The reports of one query arrive one after the other.
constexpr std::chrono::milliseconds kGrain(500);

// In the order in which a member passes through them.
enum class Activity : std::uint8_t { kElsewhere, kComputes, kWaits, kBehind };

// Compares by progress. A member of an older generation is behind all others.
struct Progress {
  bool here = false;
  std::uint64_t position = 0;
  Activity activity = Activity::kElsewhere;
  auto operator<=>(const Progress&) const = default;
};

// The leaves of a step by owner.
using Shares = std::map<proto::SlotId, std::vector<std::uint32_t>>;

Shares shares_in(const proto::World& world, proto::Step step) {
  Shares out;
  const std::vector<proto::SlotId> owners = proto::owners_of(world, step);
  for (std::uint32_t leaf = 0; leaf < owners.size(); ++leaf) out[owners[leaf]].push_back(leaf);
  return out;
}

bool has_sealed(const proto::SlotReport& slot, proto::Step step,
                const std::vector<std::uint32_t>& leaves) {
  return std::ranges::all_of(leaves, [&](std::uint32_t leaf) {
    return std::ranges::any_of(slot.seals, [&](const proto::Seal& s) {
      return s.step == step && s.leaves.contains(leaf);
    });
  });
}

// The progress of a slot that is in no collective section. `shares` caches the steps seen.
Progress progress_of(const proto::SlotReport& slot, const proto::World& world,
                     proto::SlotId slot_id, std::map<proto::Step, Shares>* shares) {
  const proto::StateWord& word = slot.state;
  const proto::Step step = word.position.step();
  const bool open = word.phase != proto::Phase::kCommitted;
  if (word.generation != world.generation || (open && step <= world.resume.step())) return {};
  Progress out{true, word.position.value, open ? Activity::kWaits : Activity::kBehind};
  if (!open) return out;
  if (!shares->contains(step)) (*shares)[step] = shares_in(world, step);
  if (!has_sealed(slot, step, (*shares)[step][slot_id])) out.activity = Activity::kComputes;
  return out;
}

bool in_section(const proto::SlotReport& slot) {
  return slot.state.phase != proto::Phase::kCommitted && slot.state.position.section() != 0;
}

std::string where(const Progress& of, const Progress& furthest, const proto::World& world) {
  const proto::Step step = proto::Position{of.position}.step();
  if (!of.here) return fmt::format("has not come to generation {}", world.generation);
  if (of.activity == Activity::kComputes) return fmt::format("computes step {}", step);
  if (of.activity == Activity::kBehind)
    return fmt::format("has not begun step {}", proto::Position{furthest.position}.step());
  return fmt::format("is still in step {}", step);
}

std::string seconds(base::Duration time) {
  const double s = std::chrono::duration<double>(time).count();
  return s < 10 ? fmt::format("{:.2g} s", s) : fmt::format("{:.0f} s", s);
}

}  // namespace

void ProgressWatch::begin(base::Duration at) {
  seen_.clear();
  quiet_since_ = at;
  reported_ = reported_again_ = false;
  furthest_at_ = {};  // the time of the regroup is no step
}

void ProgressWatch::update(base::Duration at, const proto::SlotReport& slot) {
  const auto [entry, is_new] = seen_.try_emplace(slot.member);
  Seen& seen = entry->second;
  seen.at = at;
  const proto::SlotReport& before = seen.slot;
  if (!is_new && before.state == slot.state && before.step == slot.step &&
      before.seals == slot.seals && before.finished == slot.finished &&
      before.proved == slot.proved && before.caught_up_to == slot.caught_up_to)
    return;
  if (!is_new && slot.step > before.step) ++steps_of_[slot.member];
  seen.slot = slot;
  quiet_since_ = at;
  reported_ = reported_again_ = false;
  measure(at, slot.step);
}

void ProgressWatch::measure(base::Duration at, proto::Step step) {
  const bool known = furthest_at_ != base::Duration();
  if (step <= furthest_ || (known && at - furthest_at_ < kGrain)) return;
  if (known) {
    const base::Duration took = (at - furthest_at_) / (step - furthest_);
    if (steps_.size() < kSteps) {
      steps_.push_back(took);
    } else {
      steps_[next_++ % kSteps] = took;
    }
  }
  furthest_ = step;
  furthest_at_ = at;
}

std::optional<base::Duration> ProgressWatch::median_step() const {
  if (steps_.empty()) return std::nullopt;
  std::vector<base::Duration> steps = steps_;
  const auto middle = steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2);
  std::nth_element(steps.begin(), middle, steps.end());
  return *middle;
}

bool ProgressWatch::is_quiet(base::Duration at, base::Duration least) const {
  const base::Duration quiet = at - quiet_since_;
  return !reported_ && quiet >= least &&
         quiet >= kMedians * median_step().value_or(base::Duration());
}

bool ProgressWatch::is_long_quiet(base::Duration at, base::Duration least) {
  const base::Duration quiet = at - quiet_since_;
  if (!reported_ || reported_again_ || quiet < kAgainAfter * least) return false;
  return reported_again_ =
             quiet >= kAgainAfter * kMedians * median_step().value_or(base::Duration());
}

std::optional<ProgressWatch::Stall> ProgressWatch::find_stall(
    base::Duration at, const proto::World& world,
    const std::function<bool(proto::MemberId)>& takes_part) {
  std::vector<std::pair<Progress, proto::MemberId>> all;
  std::map<proto::Step, Shares> shares;
  for (const proto::WorldMember& member : world.members) {
    if (!takes_part(member.id)) continue;
    const auto seen = seen_.find(member.id);
    if (seen == seen_.end() || at - seen->second.at > kHeard) return std::nullopt;
    const proto::SlotReport& slot = seen->second.slot;
    if (slot.finished) continue;
    if (in_section(slot)) return std::nullopt;
    all.emplace_back(progress_of(slot, world, member.slot_id, &shares), member.id);
  }
  reported_ = true;
  const base::Duration quiet = at - quiet_since_;
  const auto step = median_step();
  if (all.size() < 2) return std::nullopt;
  const Progress last = std::ranges::min_element(all)->first;
  const Progress first = std::ranges::max_element(all)->first;
  const std::string took = step ? fmt::format(" (a step takes {})", seconds(*step)) : "";
  if (last == first) {
    if (last.activity != Activity::kWaits) return std::nullopt;
    return Stall{
        {},
        fmt::format("all {} members have waited for each other in step {} for {}{}", all.size(),
                    proto::Position{last.position}.step(), seconds(quiet), took)};
  }
  Stall out;
  for (const auto& [progress, id] : all) {
    if (progress == last) out.members.push_back(id);
  }
  const std::size_t others = all.size() - out.members.size();
  const bool one = out.members.size() == 1;
  out.minority = out.members.size() <= others;
  out.sure = out.minority && steps_.size() >= kMeasured &&
             std::ranges::all_of(out.members,
                                 [this](proto::MemberId id) { return steps_of_[id] >= kTaken; });
  out.why = fmt::format("{} {} other{} waiting for {}{}: {} {}", one ? "keeps" : "keep", others,
                        others == 1 ? "" : "s", seconds(quiet), took, one ? "it" : "each",
                        where(last, first, world));
  return out;
}

}  // namespace regroup::membership
