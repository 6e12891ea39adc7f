// The order of operations, and the one place that waits.
//
// Waiting: where each rank can have a core for itself the others answer within microseconds, so this thread
// looks again for a while; elsewhere it would only keep them from running, so it lets each of them run twice.
// Then the doorbell (core/doorbell.h). The cores are those that each rank may run on (cores.h): a launcher
// may have bound each to one of its own.
#include "collective/shm/family.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "collective/shm/communicator.h"
#include "collective/shm/cores.h"
#include "collective/shm/domains.h"
#include "collective/shm/publish.h"
#include "collective/shm/spin_limit.h"
#include "core/cpu.h"

namespace regroup::collective {
namespace {

using core::Result;
using core::Status;
using core::TimePoint;

// Of sleeps, the first and the longest. Who announces and goes may not see a member that falls asleep just
// then, which does not see the announcement either; behind the nap it does.
constexpr auto kNap = std::chrono::milliseconds(1);
constexpr auto kLongestNap = std::chrono::milliseconds(64);

double seconds_since(TimePoint begin) {
  return std::chrono::duration<double>(core::SystemClock().now() - begin).count();
}

}  // namespace

Family::Family(const core::Arena& arena, core::Generation generation, core::Position instance,
               core::SlotIndex self, std::size_t ranks, const ShmOptions& options)
    : arena_(arena),
      line_(arena.line(self)),
      generation_(generation),
      self_(self),
      ranks_(ranks),
      numa_node_(options.numa_node),
      one_copy_(options.one_copy),
      staging_(options.staging),
      lines_(options.lines),
      spins_(ranks <= count(own_cores())),
      messages_(arena, generation, instance, self) {}

void Family::fail(Status why) {
  complete_stores();  // no publish() follows, and what was written may be shared
  sign_.withdraw();   // the caller may change what others might still read
  if (failed_.ok()) failed_ = std::move(why);
}

Status Family::check() {
  if (failed_.ok() && line_.revoked_up_to.load(std::memory_order_acquire) >= generation_) {
    fail({core::Code::kRevoked, fmt::format("generation {} is over", generation_)});
  }
  return failed_;
}

bool Family::gate_is_open() {
  gate_passed_ = gate_passed_ || core::all_left_before(arena_, generation_);
  return gate_passed_;
}

void Family::met(std::span<const core::SlotIndex> slots) {
  rendezvous_ += 1;
  if (std::exchange(counted_cores_, true)) return;
  std::vector<Cores> all(slots.size());
  for (std::size_t r = 0; r < slots.size(); ++r) {
    const auto& theirs = stage_of(arena_, slots[r]).cores;
    for (std::size_t i = 0; i < theirs.size(); ++i) all[r][i] = theirs[i].load(std::memory_order_relaxed);
  }
  spins_ = suffice(all, ranks_);
}

Result<std::uint64_t> Family::start(ShmCommunicator& communicator, const Operation& operation,
                                    const Call& call, TimePoint deadline) {
  REGROUP_RETURN_IF_ERROR(check());
  announce_cores();
  queue_.push_back(make_pending(communicator, operation, call, deadline));
  const std::uint64_t ticket = queue_.back().ticket;
  advance(false);
  return ticket;
}

Status Family::run(const Pending& pending, bool looked) {
  announce_cores();
  queue_.push_back(pending);
  advance(false);
  return wait(pending.ticket, looked);
}

void Family::announce_cores() {
  if (std::exchange(announced_cores_, true)) return;
  const Cores mine = own_cores();
  Stage& stage = stage_of(arena_, self_);
  if (stage.cores_of.exchange(generation_ + std::uint64_t{1}) != generation_ + std::uint64_t{1}) {
    for (std::size_t i = 0; i < mine.size(); ++i) stage.cores[i].store(mine[i], std::memory_order_relaxed);
  }
  if (!numa_node_) numa_node_ = NumaNodes::of_this_machine().node_of(mine);
}

Result<std::uint64_t> Family::start_message(const ShmCommunicator& communicator, const Operation& operation,
                                            core::SlotIndex peer, TimePoint deadline) {
  REGROUP_RETURN_IF_ERROR(check());
  messages_.add({operation, &communicator, peer, next_ticket_, core::SystemClock().now(), deadline});
  advance(false);
  return next_ticket_++;
}

void Family::advance(bool thorough) {
  if (!check().ok()) return;
  while (!queue_.empty()) {
    Pending& first = queue_.front();
    const Result<bool> done = first.communicator->advance(first, thorough);
    if (!done.ok()) return fail(done.status());
    if (!*done) break;
    queue_.pop_front();
  }
  if (messages_.empty() || !gate_is_open()) return;
  if (Status status = messages_.advance(); !status.ok()) fail(std::move(status));
}

bool Family::is_done(std::uint64_t ticket) const {
  const auto same = [&](const Pending& p) { return p.ticket == ticket; };
  return std::ranges::none_of(queue_, same) && messages_.find(ticket) == nullptr;
}

TimePoint Family::deadline_of(std::uint64_t ticket) const {
  if (const Message* message = messages_.find(ticket)) return message->deadline;
  return std::ranges::find(queue_, ticket, &Pending::ticket)->deadline;
}

TimePoint Family::start_of(std::uint64_t ticket) const {
  if (const Message* message = messages_.find(ticket)) return message->started;
  return std::ranges::find(queue_, ticket, &Pending::ticket)->started;
}

std::string Family::waits_for(std::uint64_t ticket) {
  const Message* message = messages_.find(ticket);
  if (message == nullptr && queue_.front().state != Pending::State::kNew) {
    return queue_.front().communicator->list_missing();
  }
  const Kind kind = message != nullptr ? message->operation.kind : queue_.front().operation.kind;
  if (message != nullptr && gate_is_open()) return messages_.waits_for(*message);
  std::string list;
  for (core::SlotIndex slot = 0; slot < arena_.spec().slots; ++slot) {
    const core::Line& line = arena_.line(slot);
    const core::Generation left = line.left.load(std::memory_order_acquire);
    if (line.has_living_member() && left + 1 < generation_)
      list += fmt::format("{}{} (left {})", list.empty() ? "" : ", ", slot, left);
  }
  return fmt::format("{}: slot {} did not leave the generations before", name_of(kind), list);
}

void Family::fail_late(std::uint64_t ticket) {
  fail(core::deadline_exceeded(fmt::format("{} after {:.3f} s in generation {}", waits_for(ticket),
                                           seconds_since(start_of(ticket)), generation_)));
}

Result<bool> Family::test(std::uint64_t ticket) {
  if (!failed_.ok()) return is_done(ticket) ? Result<bool>(true) : failed_;
  advance(true);
  if (is_done(ticket)) return true;
  if (failed_.ok() && core::SystemClock().now() >= deadline_of(ticket)) fail_late(ticket);
  return failed_.ok() ? Result<bool>(false) : failed_;
}

bool Family::let_run(TimePoint deadline) {
  if (spins_) return true;
  ::sched_yield();
  return goes_on() && core::SystemClock().now() < deadline;
}

bool Family::look_again(std::uint64_t ticket) {
  if (spins_) return spin(ticket);
  for (std::size_t turn = 0; turn < quick_looks() && !is_done(ticket) && failed_.ok(); ++turn) {
    if (!let_run(deadline_of(ticket))) break;
    advance(false);
  }
  return is_done(ticket);
}

bool Family::spin(std::uint64_t ticket) {
  constexpr unsigned kBetweenClocks = 64;
  SpinLimit limit;
  for (unsigned turn = 1; !is_done(ticket) && failed_.ok(); ++turn) {
    if (turn % kBetweenClocks == 0) {
      const TimePoint now = core::SystemClock().now();
      if (!limit.allows(moves(), now) || now >= deadline_of(ticket)) break;
    }
    advance(false);
    core::cpu_relax();
  }
  return is_done(ticket);
}

// Sleeps no longer than until something moved: the others go on at once, so the next move is near again. Who
// `looked` has yielded as often as pays, but looked for a shorter time than pays who spins.
Status Family::wait(std::uint64_t ticket, bool looked) {
  const core::SystemClock clock;
  auto nap = kNap;
  for (bool look = spins_ || !looked; !(look ? look_again(ticket) : is_done(ticket)) && failed_.ok();
       look = true) {
    const std::uint64_t moves = this->moves();
    const TimePoint deadline = deadline_of(ticket);
    const TimePoint until = std::min(deadline, clock.now() + nap);
    const auto ready = [&] {
      advance(true);
      return !failed_.ok() || is_done(ticket) || this->moves() != moves;
    };
    nap = core::wait_until(line_.bell, ready, until) ? kNap : std::min(2 * nap, kLongestNap);
    const bool late = failed_.ok() && !is_done(ticket) && clock.now() >= deadline;
    if (late) fail_late(ticket);
  }
  return is_done(ticket) ? Status() : failed_;
}

void Family::forget(const ShmCommunicator& communicator) {
  const auto gone = std::erase_if(queue_, [&](const Pending& p) { return p.communicator == &communicator; });
  if (gone != 0 || messages_.has_any_of(&communicator))
    fail(core::invalid_argument("communicator: destroyed with operations under way"));
}

}  // namespace regroup::collective
