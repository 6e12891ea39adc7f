// The order of operations, and the one place that waits.
//
// Waiting: with as many cores as ranks on this host the others answer soon, so this thread looks again for a
// while; then it yields for a moment, and sleeps: on the wire, or, who waits for nobody but members of this
// host, on its bell, which is one switch instead of two. Now and then it calls the roll (roll.cc).
#include "collective/ucx/engine.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <utility>

#include "core/cpu.h"
#include "core/doorbell.h"

namespace regroup::collective {

using core::Code;
using core::Result;
using core::Status;
using core::TimePoint;

namespace {

constexpr std::chrono::microseconds kSpin(100);
constexpr std::chrono::microseconds kYield(100);  // with fewer cores than ranks: others run meanwhile
constexpr std::chrono::microseconds kLate(500);   // of a yield: it went to somebody who computes
constexpr std::chrono::milliseconds kShared(20);  // that others compute here, once they did
constexpr unsigned kYields = 3;                   // of those who wait for much
constexpr std::uint64_t kSoon = 512 << 10;        // bytes of an operation that is over soon

TimePoint now() { return core::SystemClock().now(); }

}  // namespace

Waiter::~Waiter() { std::erase(engine_.waiters_, this); }

bool Waiter::await_ready() { return engine_.failed_.ok() && ready(); }

void Waiter::await_suspend(std::coroutine_handle<> task) {
  task_ = task;
  since_ = now();
  engine_.waiters_.push_back(this);
}

Engine::Engine(std::shared_ptr<Wire> wire, std::shared_ptr<const ProgressEngine> here)
    : wire_(std::move(wire)), here_(std::move(here)) {}

Engine::~Engine() {
  if (!queue_.empty() || !messages_.empty())
    fail(core::invalid_argument("communicator: destroyed with operations under way"));
  settle();
}

Status Engine::check() {
  const core::Generation generation = wire_->world().generation;
  if (failed_.ok() && wire_->is_over()) {
    fail({Code::kRevoked, fmt::format("generation {} is over", generation)});
  }
  if (failed_.ok() && !wire_->overrun().ok()) {
    fail({wire_->overrun().code(), fmt::format("generation {}: {}", generation, wire_->overrun().message())});
  }
  if (failed_.ok() && wire_->closed())
    fail({Code::kUnavailable, "another communicator on this wire has failed"});
  settle();
  return failed_;
}

void Engine::fail(Status why) {
  if (failed_.ok()) failed_ = std::move(why);
}

// Outside of all tasks: closes the wire first, since UCX may hold memory of the tasks.
void Engine::settle() {
  if (failed_.ok() || (queue_.empty() && messages_.empty())) return;
  wire_->close();
  for (const Pending& p : queue_) undone_.push_back(p.ticket);
  for (const Pending& p : messages_) undone_.push_back(p.ticket);
  queue_.clear();
  messages_.clear();
}

Result<std::uint64_t> Engine::start(Job job, TimePoint deadline) {
  REGROUP_RETURN_IF_ERROR(check());
  const std::uint64_t ticket = next_ticket_++;
  if (job.message) {
    messages_.push_back({std::move(job), ticket, deadline, now()});
  } else {
    queue_.push_back({std::move(job), ticket, deadline, now()});
  }
  while (advance(!waits_here())) {
  }
  return ticket;
}

// Who waits for nobody on other hosts: of them they need not hear, for a while.
bool Engine::waits_here() const {
  return !waiters_.empty() && std::ranges::all_of(waiters_, [](const Waiter* w) { return w->peer() < 0; });
}

// True if anything moved. Not `by_wire`: here, as far as can be seen without the wire.
bool Engine::advance(bool by_wire) {
  if (!check().ok()) return false;
  bool moved = by_wire && wire_->progress();
  const auto begin = [](Pending& pending) {
    if (pending.task) return;
    pending.begun = now();
    pending.task.emplace(pending.job.begin());
  };
  std::ranges::for_each(messages_, begin);
  if (!queue_.empty()) begin(queue_.front());
  moved = resume_ready() || moved;
  moved = retire() || moved;
  settle();
  return moved && failed_.ok();
}

bool Engine::resume_ready() {
  bool moved = false;
  for (std::size_t i = 0; i < waiters_.size() && failed_.ok();) {
    Waiter* const waiter = waiters_[i];
    if (!waiter->ready()) {
      ++i;
      continue;
    }
    std::erase(waiters_, waiter);
    waiter->resume();
    moved = true;
  }
  return moved;
}

bool Engine::retire() {
  if (!failed_.ok()) return false;
  const auto is_done = [](const Pending& p) { return p.task && p.task->done(); };
  bool moved = std::erase_if(messages_, is_done) > 0;
  if (!queue_.empty() && is_done(queue_.front())) {
    wire_->drop_calls(queue_.front().job.line, queue_.front().job.number);
    queue_.pop_front();
    moved = true;
  }
  return moved;
}

Engine::Pending* Engine::find(std::uint64_t ticket) {
  for (Pending& p : queue_) {
    if (p.ticket == ticket) return &p;
  }
  for (Pending& p : messages_) {
    if (p.ticket == ticket) return &p;
  }
  return nullptr;
}

bool Engine::is_done(std::uint64_t ticket) {
  return find(ticket) == nullptr && std::ranges::find(undone_, ticket) == undone_.end();
}

// What need not be looked at while all goes well.
void Engine::look_around() {
  wire_->answer_callers();
  for (const Waiter* waiter : waiters_) {
    if (waiter->peer() < 0) continue;
    static_cast<void>(wire_->reach(waiter->peer()));  // without an endpoint nobody tells us of its death
    wire_->report_lost(waiter->peer());
    wire_->report_silent(waiter->peer(), waiter->since());
  }
  if (queue_.empty()) return;
  hear_failure(queue_.front().job);
  if (failed_.ok()) find_stranger(queue_.front().job);
  if (!failed_.ok() || now() < next_call(queue_.front())) return;
  hear_last_words(queue_.front().job);
  if (failed_.ok()) call_roll();
}

void Engine::fail_late(const Pending& pending) {
  const Job& job = pending.job.message || queue_.empty() ? pending.job : queue_.front().job;
  const std::vector<int> absent = job.message ? std::vector<int>{job.peer} : missing(job);
  std::string list;
  std::string lost;
  for (const int r : absent) {
    const std::string& why = wire_->lost(job.ranks[static_cast<std::size_t>(r)]);
    list += fmt::format("{}{}", list.empty() ? "" : ", ", r);
    const std::string& refused = wire_->refused_by(job.ranks[static_cast<std::size_t>(r)]);
    if (!why.empty()) lost += fmt::format(" (the connection to {} is lost: {})", r, why);
    if (!refused.empty()) lost += fmt::format(" (rank {} cannot be called: {})", r, refused);
  }
  const auto kind = static_cast<Kind>(job.call.what & 0xff);
  const std::string what =
      job.message ? fmt::format("rank {} did not {}", list, kind == Kind::kSend ? "receive" : "send")
                  : fmt::format("rank {} of {} did not arrive", list, job.ranks.size());
  fail(core::deadline_exceeded(fmt::format("{}: {} after {:.3f} s in generation {}{}", name_of(kind), what,
                                           std::chrono::duration<double>(now() - pending.begun).count(),
                                           wire_->world().generation, lost)));
  settle();
}

Result<bool> Engine::test(std::uint64_t ticket) {
  while (advance()) {
  }
  if (failed_.ok() && !is_done(ticket)) look_around();
  settle();
  const Pending* pending = find(ticket);
  if (pending != nullptr && now() >= pending->deadline) fail_late(*pending);
  if (is_done(ticket)) return true;
  return failed_.ok() ? Result<bool>(false) : failed_;
}

bool Engine::spin(std::uint64_t ticket) {
  TimePoint end{};
  while (spins() && find(ticket) != nullptr && failed_.ok()) {
    if (advance(!waits_here())) {
      end = {};
      continue;
    }
    core::cpu_relax();
    const TimePoint time = now();
    if (end == TimePoint()) end = time + kSpin;
    if (time >= end) break;
  }
  return is_done(ticket);
}

// Sees that the roll is called in time, that silence is noticed, and that the deadline is kept.
TimePoint Engine::next_look(const Pending& pending) const {
  return std::min(pending.deadline,
                  queue_.empty() ? now() + wire_->roll_interval() : next_call(queue_.front()));
}

// Until nothing has moved for a while: to be woken costs more. Who gets the core back late shares it with
// others that compute, and is better off being woken; so is who waits for much. Returns how often the bell
// had rung before the last look.
std::uint32_t Engine::look_again(std::uint64_t ticket) {
  const bool soon = queue_.empty() || queue_.front().job.call.bytes <= kSoon;
  TimePoint end{};
  unsigned attempt = 0;
  for (;;) {
    const std::uint32_t seen = wire_->line().bell.count.load(std::memory_order_acquire);
    const bool moved = advance(!waits_here());
    if (!failed_.ok() || find(ticket) == nullptr) return seen;
    const TimePoint time = now();
    if (moved || end == TimePoint()) end = time + kYield;
    if (moved) continue;
    if (time < shared_until_ || time >= end || (!soon && attempt++ >= kYields)) return seen;
    ::sched_yield();
    if (now() - time > kLate) shared_until_ = now() + kShared;
  }
}

// Who stores what we wait for rings only if it sees us asleep: the look behind that finds what came before.
// In the first operation others may call meanwhile, and are answered.
void Engine::sleep(std::uint64_t ticket, std::uint32_t seen, TimePoint until) {
  auto& bell = wire_->line().bell;
  bell.sleeping.store(1, std::memory_order_seq_cst);
  const bool moved = advance();
  if (!moved && failed_.ok() && find(ticket) != nullptr) {
    const bool is_first = queue_.empty() || queue_.front().job.number == 1;
    const bool naps = waits_here() && !is_first;
    const TimePoint patience = naps ? waiters_.front()->since() + kPatience : TimePoint();
    if (now() < patience) {
      core::RealPolicy::wait(bell.count, seen, std::min(until, patience));
    } else {
      wire_->sleep(seen, until);
    }
  }
  bell.sleeping.store(0, std::memory_order_relaxed);
}

Status Engine::wait(std::uint64_t ticket) {
  while (!spin(ticket) && failed_.ok()) {
    const std::uint32_t seen = look_again(ticket);
    if (failed_.ok() && !is_done(ticket)) look_around();
    settle();
    const Pending* pending = find(ticket);
    if (pending == nullptr) break;
    if (now() >= pending->deadline) {
      fail_late(*pending);
    } else {
      sleep(ticket, seen, next_look(*pending));
    }
  }
  return is_done(ticket) ? Status() : failed_;
}

void Engine::forget(const LineId& line) {
  const auto of_line = [&](const Pending& p) { return p.job.line == line; };
  if (std::ranges::none_of(queue_, of_line) && std::ranges::none_of(messages_, of_line)) return;
  fail(core::invalid_argument("communicator: destroyed with operations under way"));
  settle();
}

}  // namespace regroup::collective
