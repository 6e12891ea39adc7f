// The order of operations, and the only code of this folder that waits.
//
// If each rank can have a core of its own, the peers arrive within microseconds, so the waiting
// thread polls for a while. Otherwise polling would keep the peers from running, so the thread
// yields to each of them twice. Then it sleeps on the doorbell (shmem/doorbell.h). Cores are
// counted from the affinity of every rank (cores.h), since a launcher may have bound each rank to
// one core.
#include "collective/shm/progress_engine.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/status.h"
#include "collective/reduce/publish.h"
#include "collective/shm/communicator.h"
#include "collective/shm/cores.h"
#include "collective/shm/numa_domains.h"
#include "collective/spin_limit.h"

namespace regroup::collective::shm {
namespace {

using base::Result;
using base::Status;
using base::TimePoint;

// The first and the longest sleep. A peer that leaves by signal_and_leave() may fail to ring a
// member that falls asleep at that moment; the member then sees the arrival when its sleep ends.
constexpr auto kFirstSleep = std::chrono::milliseconds(1);
constexpr auto kMaxSleep = std::chrono::milliseconds(64);

TimePoint system_time() { return base::SystemClock().now(); }

double seconds_since(TimePoint begin) {
  return std::chrono::duration<double>(base::SystemClock().now() - begin).count();
}

}  // namespace

ProgressEngine::ProgressEngine(const shmem::Arena& arena, proto::Generation generation,
                               proto::Position instance, proto::SlotIndex self, std::size_t ranks,
                               const ShmOptions& options)
    : arena_(arena),
      own_slot_(arena.member_slot(self)),
      generation_(generation),
      self_(self),
      ranks_(ranks),
      numa_node_(options.numa_node),
      single_copy_(options.single_copy),
      store_policy_(options.store_policy),
      inline_mode_(options.inline_mode),
      spin_clock_(options.spin_clock != nullptr ? options.spin_clock : system_time),
      core_use_(ranks <= count(own_cores())),
      messages_(arena, generation, instance, self) {}

void ProgressEngine::fail(Status why) {
  // No publish() follows, and this member may have stored to shared memory.
  reduce::complete_stores();
  canary_.withdraw();  // the caller may change memory that peers might still read
  if (failed_.ok()) failed_ = std::move(why);
}

Status ProgressEngine::check() {
  if (failed_.ok() && own_slot_.revoked_up_to.load(std::memory_order_acquire) >= generation_) {
    fail(base::revoked(fmt::format("generation {} is over", generation_)));
  }
  return failed_;
}

bool ProgressEngine::fence_is_open() {
  fence_passed_ = fence_passed_ || shmem::all_left_before(arena_, generation_);
  return fence_passed_;
}

void ProgressEngine::on_sync(std::span<const proto::SlotIndex> slots) {
  sync_points_ += 1;
  if (core_use_.is_counted()) return;
  std::vector<Cores> all(slots.size());
  for (std::size_t r = 0; r < slots.size(); ++r) {
    const auto& theirs = bounce_buffer_of(arena_, slots[r]).cores;
    for (std::size_t i = 0; i < theirs.size(); ++i)
      all[r][i] = theirs[i].load(std::memory_order_relaxed);
  }
  core_use_.count(suffice(all, ranks_));
}

Result<std::uint64_t> ProgressEngine::start(const Pending& pending) {
  REGROUP_RETURN_IF_ERROR(check());
  publish_cores();
  queue_.push_back(pending);
  advance(false);
  return pending.ticket;
}

Status ProgressEngine::run(const Pending& pending, bool polled) {
  publish_cores();
  queue_.push_back(pending);
  advance(false);
  return wait(pending.ticket, polled);
}

void ProgressEngine::publish_cores() {
  if (std::exchange(published_cores_, true)) return;
  const Cores mine = own_cores();
  BounceBuffer& buffer = bounce_buffer_of(arena_, self_);
  if (buffer.cores_of.exchange(generation_ + std::uint64_t{1}) != generation_ + std::uint64_t{1}) {
    for (std::size_t i = 0; i < mine.size(); ++i)
      buffer.cores[i].store(mine[i], std::memory_order_relaxed);
  }
  if (!numa_node_) numa_node_ = NumaNodes::of_this_machine().node_of(mine);
}

Result<std::uint64_t> ProgressEngine::start_message(const ShmCommunicator& communicator,
                                                    const Operation& operation,
                                                    proto::SlotIndex peer, TimePoint deadline) {
  REGROUP_RETURN_IF_ERROR(check());
  messages_.add(
      {operation, &communicator, peer, next_ticket_, base::SystemClock().now(), deadline});
  advance(false);
  return next_ticket_++;
}

void ProgressEngine::advance(bool thorough) {
  if (!check().ok()) return;
  while (!queue_.empty()) {
    Pending& first = queue_.front();
    const Result<bool> done = first.communicator->advance(first, thorough);
    if (!done.ok()) return fail(done.status());
    if (!*done) break;
    queue_.pop_front();
  }
  if (messages_.empty() || !fence_is_open()) return;
  if (Status status = messages_.advance(); !status.ok()) fail(std::move(status));
}

bool ProgressEngine::is_done(std::uint64_t ticket) const {
  const auto same = [&](const Pending& p) { return p.ticket == ticket; };
  return std::ranges::none_of(queue_, same) && messages_.find(ticket) == nullptr;
}

TimePoint ProgressEngine::deadline_of(std::uint64_t ticket) const {
  if (const Message* message = messages_.find(ticket)) return message->deadline;
  return std::ranges::find(queue_, ticket, &Pending::ticket)->deadline;
}

TimePoint ProgressEngine::start_of(std::uint64_t ticket) const {
  if (const Message* message = messages_.find(ticket)) return message->started;
  return std::ranges::find(queue_, ticket, &Pending::ticket)->started;
}

std::string ProgressEngine::describe_wait(std::uint64_t ticket) {
  const Message* message = messages_.find(ticket);
  if (message == nullptr && queue_.front().state != Pending::State::kNew) {
    return queue_.front().communicator->list_missing();
  }
  const char* const name =
      message != nullptr ? name_of(message->operation.kind) : name_of(queue_.front().signature);
  if (message != nullptr && fence_is_open()) return messages_.describe_wait(*message);
  std::string list;
  for (proto::SlotIndex slot = 0; slot < arena_.spec().slots; ++slot) {
    const shmem::MemberSlot& member_slot = arena_.member_slot(slot);
    const proto::Generation left = member_slot.left_generation.load(std::memory_order_acquire);
    if (member_slot.has_living_member() && left + 1 < generation_)
      list += fmt::format("{}{} (left {})", list.empty() ? "" : ", ", slot, left);
  }
  return fmt::format("{}: slot {} did not leave the generations before", name, list);
}

void ProgressEngine::fail_timed_out(std::uint64_t ticket) {
  fail(base::deadline_exceeded(fmt::format("{} after {:.3f} s in generation {}",
                                           describe_wait(ticket), seconds_since(start_of(ticket)),
                                           generation_)));
}

Result<bool> ProgressEngine::test(std::uint64_t ticket) {
  if (!failed_.ok()) return is_done(ticket) ? Result<bool>(true) : failed_;
  advance(true);
  if (is_done(ticket)) return true;
  if (failed_.ok() && base::SystemClock().now() >= deadline_of(ticket)) fail_timed_out(ticket);
  return failed_.ok() ? Result<bool>(false) : failed_;
}

bool ProgressEngine::yield_core(TimePoint deadline) {
  if (spins()) return true;
  ::sched_yield();
  return can_continue() && base::SystemClock().now() < deadline;
}

bool ProgressEngine::poll_again(std::uint64_t ticket) {
  if (spins()) return spin(ticket);
  for (std::size_t attempt = 0; attempt < spin_polls() && !is_done(ticket) && failed_.ok();
       ++attempt) {
    if (!yield_core(deadline_of(ticket))) break;
    advance(false);
  }
  return is_done(ticket);
}

bool ProgressEngine::spin(std::uint64_t ticket) {
  constexpr unsigned kBetweenClocks = 64;
  SpinLimit limit;
  for (unsigned attempt = 1; !is_done(ticket) && failed_.ok(); ++attempt) {
    if (attempt % kBetweenClocks == 0) {
      const TimePoint now = spin_clock_();
      if (!limit.allows(progress(), now) || now >= deadline_of(ticket)) break;
    }
    advance(false);
    base::cpu_relax();
  }
  return is_done(ticket);
}

// Sleeps until something progresses, then polls again, since the peers continue at once and the
// next progress is due soon. A caller that has `polled` has yielded often enough, but should still
// spin.
Status ProgressEngine::wait(std::uint64_t ticket, bool polled) {
  const base::SystemClock clock;
  auto sleep = kFirstSleep;
  for (bool poll = spins() || !polled;
       !(poll ? poll_again(ticket) : is_done(ticket)) && failed_.ok(); poll = true) {
    const std::uint64_t progress = this->progress();
    const TimePoint deadline = deadline_of(ticket);
    const TimePoint until = std::min(deadline, clock.now() + sleep);
    const auto ready = [&] {
      advance(true);
      return !failed_.ok() || is_done(ticket) || this->progress() != progress;
    };
    sleeps_ += 1;
    sleep = shmem::wait_until(own_slot_.bell, ready, until) ? kFirstSleep
                                                            : std::min(2 * sleep, kMaxSleep);
    const bool late = failed_.ok() && !is_done(ticket) && clock.now() >= deadline;
    if (late) fail_timed_out(ticket);
  }
  return is_done(ticket) ? Status() : failed_;
}

void ProgressEngine::detach(const ShmCommunicator& communicator) {
  const auto gone =
      std::erase_if(queue_, [&](const Pending& p) { return p.communicator == &communicator; });
  if (gone != 0 || messages_.has_any_of(&communicator))
    fail(base::invalid_argument("communicator: destroyed with operations under way"));
}

}  // namespace regroup::collective::shm
