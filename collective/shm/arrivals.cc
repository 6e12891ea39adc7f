// Arrival words and the waits on them.
//
// Who rings: a member stores its arrival, then looks at all others, both sequentially consistent; so at least
// the last in that order sees everybody, and whoever sees everybody rings everybody. The others need not
// ring: nobody can go on before the last one.
#include "collective/shm/arrivals.h"

#include <fmt/format.h>

#include <utility>

#include "collective/shm/publish.h"

namespace regroup::collective {
namespace {

constexpr unsigned kPositionBits = 40;

core::Generation generation_of(std::uint64_t instance) {
  return static_cast<core::Generation>(instance >> kPositionBits);
}

double seconds_since(core::TimePoint begin) {
  return std::chrono::duration<double>(core::SystemClock().now() - begin).count();
}

}  // namespace

Arrivals::Arrivals(const core::Arena& arena, core::Generation generation, core::ChannelKind channel,
                   core::Position instance, std::vector<core::SlotIndex> slots, int self)
    : arena_(arena),
      generation_(generation),
      channel_(channel),
      instance_(static_cast<std::uint64_t>(generation) << kPositionBits | instance.value),
      slots_(std::move(slots)),
      self_(static_cast<std::size_t>(self)) {}

core::Channel& Arrivals::channel_of(std::size_t member) const {
  return arena_.line(slots_[member]).channels[static_cast<std::size_t>(channel_)];
}

bool Arrivals::is_over() {
  over_ = over_ || arena_.line(slots_[self_]).revoked_up_to.load(std::memory_order_acquire) >= generation_;
  return over_;
}

core::Status Arrivals::check() {
  if (failed_.ok() && is_over()) {
    failed_ = {core::Code::kRevoked, fmt::format("generation {} is over", generation_)};
  }
  return failed_;
}

template <class Ready, class Missing>
core::Status Arrivals::wait(std::string_view operation, core::TimePoint deadline, Ready ready,
                            Missing missing) {
  const core::TimePoint begin = core::SystemClock().now();
  const bool done = core::wait_until(
      arena_.line(slots_[self_]).bell, [&] { return is_over() || ready(); }, deadline);
  REGROUP_RETURN_IF_ERROR(check());
  if (!done) {
    failed_ = core::deadline_exceeded(fmt::format("{}: {} after {:.3f} s in generation {}", operation,
                                                  missing(), seconds_since(begin), generation_));
  }
  return failed_;
}

core::Status Arrivals::gate(std::string_view operation, core::TimePoint deadline) {
  if (gate_passed_) return {};
  auto left = [&] { return core::all_left_before(arena_, generation_); };
  REGROUP_RETURN_IF_ERROR(wait(operation, deadline, left, [&] { return list_not_left(); }));
  gate_passed_ = true;
  return {};
}

core::Status Arrivals::open() {
  core::Channel& mine = channel_of(self_);
  if (mine.instance.load(std::memory_order_relaxed) >= instance_) {
    failed_ = core::invalid_argument(
        fmt::format("communicator: instance {} of generation {} was opened before, or a later one was",
                    instance_ & ((1ULL << kPositionBits) - 1), generation_));
    return failed_;
  }
  mine.arrived.store(0, std::memory_order_seq_cst);
  mine.instance.store(instance_, std::memory_order_seq_cst);
  opened_ = true;
  ring_others();  // who waits in an instance before this one waits in vain
  return {};
}

core::Status Arrivals::meet(std::string_view operation, core::TimePoint deadline) {
  complete_stores();  // a revoke may end it here, without a publish()
  REGROUP_RETURN_IF_ERROR(check());
  if (slots_.size() > 1) {
    if (!opened_) REGROUP_RETURN_IF_ERROR(open());
    target_ = met_ + 1;
    first_late_ = 0;
    publish(channel_of(self_).arrived, target_);
    if (all_have_arrived()) ring_others();
    REGROUP_RETURN_IF_ERROR(wait(
        operation, deadline, [&] { return all_have_arrived(); }, [&] { return list_missing(); }));
  }
  ++met_;
  return {};
}

void Arrivals::ring_others() const {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (i != self_) core::ring(arena_.line(slots_[i]).bell);
  }
}

bool Arrivals::all_have_arrived() {
  while (first_late_ < slots_.size() && has_arrived(first_late_)) ++first_late_;
  return first_late_ == slots_.size();
}

// A member in a later instance was done with this one. One in a later generation was not, perhaps; but no
// generation begins before the one before it is over.
bool Arrivals::has_arrived(std::size_t member) {
  if (member == self_) return true;
  const core::Channel& channel = channel_of(member);
  const std::uint64_t instance = channel.instance.load(std::memory_order_seq_cst);
  if (instance == instance_) return channel.arrived.load(std::memory_order_seq_cst) >= target_;
  over_ = over_ || generation_of(instance) > generation_;
  return instance > instance_;
}

std::string Arrivals::list_missing() {
  std::string list;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (has_arrived(i)) continue;
    const bool dead = arena_.line(slots_[i]).dead.load(std::memory_order_acquire) != 0;
    list += fmt::format("{}{}{}", list.empty() ? "" : ", ", i, dead ? " (dead)" : "");
  }
  return fmt::format("rank {} of {} did not arrive", list, slots_.size());
}

std::string Arrivals::list_not_left() const {
  std::string list;
  for (core::SlotIndex slot = 0; slot < arena_.spec().slots; ++slot) {
    const core::Line& line = arena_.line(slot);
    if (line.occupied.load(std::memory_order_acquire) == 0 ||
        line.dead.load(std::memory_order_acquire) != 0) {
      continue;
    }
    const core::Generation left = line.left.load(std::memory_order_acquire);
    if (left + 1 < generation_) list += fmt::format("{}{} (left {})", list.empty() ? "" : ", ", slot, left);
  }
  return fmt::format("slot {} did not leave the generations before", list);
}

}  // namespace regroup::collective
