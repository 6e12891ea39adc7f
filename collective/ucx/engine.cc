// The order of operations, and the one place that waits.
//
// Waiting: with as many cores as ranks on this host the others answer soon, so this thread looks again for a
// while; then it yields for a moment, and sleeps: on the mesh, or, who waits for nobody but members of this
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
constexpr std::chrono::microseconds kYield(100);          // with fewer cores than ranks: others run meanwhile
constexpr std::chrono::microseconds kSlowYield(500);      // of a yield: it went to somebody who computes
constexpr std::chrono::milliseconds kSharedCoreTime(20);  // that others compute here, once they did
constexpr unsigned kYields = 3;                           // of those who wait for much
constexpr std::uint64_t kSmallBytes = 512 << 10;          // bytes of an operation that is over soon

TimePoint now() { return core::SystemClock().now(); }

}  // namespace

Waiter::~Waiter() { std::erase(engine_.waiters_, this); }

bool Waiter::await_ready() { return engine_.failed_.ok() && ready(); }

void Waiter::await_suspend(std::coroutine_handle<> task) {
  task_ = task;
  since_ = now();
  engine_.waiters_.push_back(this);
}

Engine::Engine(std::shared_ptr<PeerMesh> mesh, std::shared_ptr<const ProgressEngine> here)
    : mesh_(std::move(mesh)), local_(std::move(here)) {}

Engine::~Engine() {
  if (!queue_.empty() || !point_to_point_.empty())
    fail(core::invalid_argument("communicator: destroyed with operations under way"));
  abort_if_failed();
}

Status Engine::check() {
  const core::Generation generation = mesh_->world().generation;
  if (failed_.ok() && mesh_->is_over()) {
    fail({Code::kRevoked, fmt::format("generation {} is over", generation)});
  }
  if (failed_.ok() && !mesh_->overrun().ok()) {
    fail({mesh_->overrun().code(), fmt::format("generation {}: {}", generation, mesh_->overrun().message())});
  }
  if (failed_.ok() && mesh_->closed())
    fail({Code::kUnavailable, "another communicator on this mesh has failed"});
  abort_if_failed();
  return failed_;
}

void Engine::fail(Status why) {
  if (failed_.ok()) failed_ = std::move(why);
}

// Outside of all tasks: closes the mesh first, since UCX may hold memory of the tasks.
void Engine::abort_if_failed() {
  if (failed_.ok() || (queue_.empty() && point_to_point_.empty())) return;
  mesh_->close();
  for (const Pending& p : queue_) aborted_.push_back(p.ticket);
  for (const Pending& p : point_to_point_) aborted_.push_back(p.ticket);
  queue_.clear();
  point_to_point_.clear();
}

Result<std::uint64_t> Engine::start(OperationDescriptor operation, TimePoint deadline) {
  REGROUP_RETURN_IF_ERROR(check());
  const std::uint64_t ticket = next_ticket_++;
  if (operation.point_to_point) {
    point_to_point_.push_back({std::move(operation), ticket, deadline, now()});
  } else {
    queue_.push_back({std::move(operation), ticket, deadline, now()});
  }
  while (advance(!waits_for_local_only())) {
  }
  return ticket;
}

// Who waits for nobody on other hosts: of them they need not hear, for a while.
bool Engine::waits_for_local_only() const {
  return !waiters_.empty() && std::ranges::all_of(waiters_, [](const Waiter* w) { return w->peer() < 0; });
}

// True if anything moved. Not `with_network`: here, as far as can be seen without the mesh.
bool Engine::advance(bool with_network) {
  if (!check().ok()) return false;
  bool moved = with_network && mesh_->progress();
  const auto begin = [](Pending& pending) {
    if (pending.task) return;
    pending.begun = now();
    pending.task.emplace(pending.operation.begin());
  };
  std::ranges::for_each(point_to_point_, begin);
  if (!queue_.empty()) begin(queue_.front());
  moved = resume_ready() || moved;
  moved = retire() || moved;
  abort_if_failed();
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
  bool moved = std::erase_if(point_to_point_, is_done) > 0;
  if (!queue_.empty() && is_done(queue_.front())) {
    mesh_->drop_probes(queue_.front().operation.communicator, queue_.front().operation.number);
    queue_.pop_front();
    moved = true;
  }
  return moved;
}

Engine::Pending* Engine::find(std::uint64_t ticket) {
  for (Pending& p : queue_) {
    if (p.ticket == ticket) return &p;
  }
  for (Pending& p : point_to_point_) {
    if (p.ticket == ticket) return &p;
  }
  return nullptr;
}

bool Engine::is_done(std::uint64_t ticket) {
  return find(ticket) == nullptr && std::ranges::find(aborted_, ticket) == aborted_.end();
}

// What need not be looked at while all goes well.
void Engine::check_peers() {
  mesh_->accept_connections();
  for (const Waiter* waiter : waiters_) {
    if (waiter->peer() < 0) continue;
    static_cast<void>(mesh_->connect(waiter->peer()));  // without an endpoint nobody tells us of its death
    mesh_->report_lost(waiter->peer());
    mesh_->report_silent(waiter->peer(), waiter->since());
  }
  if (queue_.empty()) return;
  receive_failure(queue_.front().operation);
  if (failed_.ok()) find_mismatch(queue_.front().operation);
  if (!failed_.ok() || now() < next_probe(queue_.front())) return;
  check_published_failures(queue_.front().operation);
  if (failed_.ok()) send_probes();
}

void Engine::fail_at_deadline(const Pending& pending) {
  const OperationDescriptor& operation =
      pending.operation.point_to_point || queue_.empty() ? pending.operation : queue_.front().operation;
  const std::vector<int> absent =
      operation.point_to_point ? std::vector<int>{operation.peer} : missing_ranks(operation);
  std::string list;
  std::string lost;
  for (const int r : absent) {
    const std::string& why = mesh_->lost(operation.ranks[static_cast<std::size_t>(r)]);
    list += fmt::format("{}{}", list.empty() ? "" : ", ", r);
    const std::string& refused = mesh_->connect_error(operation.ranks[static_cast<std::size_t>(r)]);
    if (!why.empty()) lost += fmt::format(" (the connection to {} is lost: {})", r, why);
    if (!refused.empty()) lost += fmt::format(" (rank {} cannot be called: {})", r, refused);
  }
  const auto kind = static_cast<Kind>(operation.call.what & 0xff);
  const std::string what =
      operation.point_to_point
          ? fmt::format("rank {} did not {}", list, kind == Kind::kSend ? "receive" : "send")
          : fmt::format("rank {} of {} did not arrive", list, operation.ranks.size());
  fail(core::deadline_exceeded(fmt::format("{}: {} after {:.3f} s in generation {}{}", name_of(kind), what,
                                           std::chrono::duration<double>(now() - pending.begun).count(),
                                           mesh_->world().generation, lost)));
  abort_if_failed();
}

Result<bool> Engine::test(std::uint64_t ticket) {
  while (advance()) {
  }
  if (failed_.ok() && !is_done(ticket)) check_peers();
  abort_if_failed();
  const Pending* pending = find(ticket);
  if (pending != nullptr && now() >= pending->deadline) fail_at_deadline(*pending);
  if (is_done(ticket)) return true;
  return failed_.ok() ? Result<bool>(false) : failed_;
}

bool Engine::spin(std::uint64_t ticket) {
  TimePoint end{};
  while (spins() && find(ticket) != nullptr && failed_.ok()) {
    if (advance(!waits_for_local_only())) {
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
TimePoint Engine::next_wakeup(const Pending& pending) const {
  return std::min(pending.deadline,
                  queue_.empty() ? now() + mesh_->probe_interval() : next_probe(queue_.front()));
}

// Until nothing has moved for a while: to be woken costs more. Who gets the core back late shares it with
// others that compute, and is better off being woken; so is who waits for much. Returns how often the bell
// had rung before the last look.
std::uint32_t Engine::poll_and_yield(std::uint64_t ticket) {
  const bool soon = queue_.empty() || queue_.front().operation.call.bytes <= kSmallBytes;
  TimePoint end{};
  unsigned attempt = 0;
  for (;;) {
    const std::uint32_t seen = mesh_->line().bell.count.load(std::memory_order_acquire);
    const bool moved = advance(!waits_for_local_only());
    if (!failed_.ok() || find(ticket) == nullptr) return seen;
    const TimePoint time = now();
    if (moved || end == TimePoint()) end = time + kYield;
    if (moved) continue;
    if (time < shared_until_ || time >= end || (!soon && attempt++ >= kYields)) return seen;
    ::sched_yield();
    if (now() - time > kSlowYield) shared_until_ = now() + kSharedCoreTime;
  }
}

// Who stores what we wait for rings only if it sees us asleep: the look behind that finds what came before.
// In the first operation others may call meanwhile, and are answered.
void Engine::sleep(std::uint64_t ticket, std::uint32_t seen, TimePoint until) {
  auto& bell = mesh_->line().bell;
  bell.sleeping.store(1, std::memory_order_seq_cst);
  const bool moved = advance();
  if (!moved && failed_.ok() && find(ticket) != nullptr) {
    const bool is_first = queue_.empty() || queue_.front().operation.number == 1;
    const bool naps = waits_for_local_only() && !is_first;
    const TimePoint patience = naps ? waiters_.front()->since() + kProbeDelay : TimePoint();
    if (now() < patience) {
      core::RealPolicy::wait(bell.count, seen, std::min(until, patience));
    } else {
      mesh_->sleep(seen, until);
    }
  }
  bell.sleeping.store(0, std::memory_order_relaxed);
}

Status Engine::wait(std::uint64_t ticket) {
  while (!spin(ticket) && failed_.ok()) {
    const std::uint32_t seen = poll_and_yield(ticket);
    if (failed_.ok() && !is_done(ticket)) check_peers();
    abort_if_failed();
    const Pending* pending = find(ticket);
    if (pending == nullptr) break;
    if (now() >= pending->deadline) {
      fail_at_deadline(*pending);
    } else {
      sleep(ticket, seen, next_wakeup(*pending));
    }
  }
  return is_done(ticket) ? Status() : failed_;
}

void Engine::abandon(const CommunicatorId& communicator) {
  const auto is_of = [&](const Pending& p) { return p.operation.communicator == communicator; };
  if (std::ranges::none_of(queue_, is_of) && std::ranges::none_of(point_to_point_, is_of)) return;
  fail(core::invalid_argument("communicator: destroyed with operations under way"));
  abort_if_failed();
}

}  // namespace regroup::collective
