// The order of operations, and the only code that waits.
//
// A waiting thread polls for a while if each rank of this host has a core of its own, because the
// others then answer within microseconds. Otherwise it yields for a moment, then sleeps: in the
// mesh, or, if it waits only for members of this host, on its doorbell, which takes one context
// switch instead of two. From time to time it sends straggler probes (straggler_probe.h).
#include "collective/ucx/engine.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/status.h"
#include "collective/ucx/failure_notice.h"
#include "shmem/doorbell.h"

namespace regroup::collective::ucx {

using base::Result;
using base::Status;
using base::TimePoint;

namespace {

constexpr std::chrono::microseconds kSpin(100);
constexpr std::chrono::microseconds kYield(100);  // polling with yields and without progress
// After a yield that takes this long, a computing process has run on our core.
constexpr std::chrono::microseconds kSlowYield(500);
constexpr std::chrono::milliseconds kSharedCoreTime(20);  // no yields for this long after that
constexpr unsigned kYields = 3;                           // yields of a rank in a large operation
constexpr std::uint64_t kSmallBytes = 512 << 10;          // larger operations take long

TimePoint now() { return base::SystemClock().now(); }

}  // namespace

Waiter::~Waiter() { std::erase(engine_.waiters_, this); }

bool Waiter::await_ready() { return engine_.failed_.ok() && ready(); }

void Waiter::await_suspend(std::coroutine_handle<> task) {
  task_ = task;
  since_ = now();
  engine_.waiters_.push_back(this);
}

Engine::Engine(std::shared_ptr<PeerMesh> mesh, std::shared_ptr<const CoreUse> cores)
    : mesh_(std::move(mesh)), cores_(std::move(cores)), probes_(*mesh_) {}

Engine::~Engine() {
  if (!queue_.empty() || !point_to_point_.empty())
    fail(base::invalid_argument("communicator: destroyed with operations under way"));
  abort_if_failed();
}

Status Engine::check() {
  const proto::Generation generation = mesh_->world().generation;
  if (failed_.ok() && mesh_->is_over()) {
    fail(base::revoked(fmt::format("generation {} is over", generation)));
  }
  if (failed_.ok() && !mesh_->overrun().ok()) {
    fail({mesh_->overrun().code(),
          fmt::format("generation {}: {}", generation, mesh_->overrun().message())});
  }
  if (failed_.ok() && mesh_->closed())
    fail(base::unavailable("another communicator on this mesh has failed"));
  abort_if_failed();
  return failed_;
}

void Engine::fail(Status why) {
  if (failed_.ok()) failed_ = std::move(why);
}

// Runs outside of all tasks. Closes the mesh first, because UCX may access memory that tasks own.
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

// True if no task waits for a rank of another host, so that the network need not be polled.
bool Engine::waits_for_local_only() const {
  return !waiters_.empty() &&
         std::ranges::all_of(waiters_, [](const Waiter* w) { return w->peer() < 0; });
}

// Advances all tasks; true if anything progressed. Without `with_network`, polls only the memory of
// this host's ranks.
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
    probes_.end(queue_.front().operation);
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

// Checks that are unnecessary while operations complete within microseconds.
void Engine::check_peers() {
  mesh_->accept_connections();
  for (const Waiter* waiter : waiters_) {
    if (waiter->peer() < 0) continue;
    // UCX reports the death of a peer only if there is an endpoint to it, so connect.
    static_cast<void>(mesh_->connect(waiter->peer()));
    mesh_->report_lost(waiter->peer());
    mesh_->report_silent(waiter->peer(), waiter->since());
  }
  if (queue_.empty()) return;
  const OperationDescriptor& operation = queue_.front().operation;
  if (auto why = receive_failure(*mesh_, operation.communicator))
    fail(base::invalid_argument(*std::move(why)));
  const auto mismatch = failed_.ok() ? probes_.find_mismatch(operation) : std::nullopt;
  if (mismatch) fail_mismatch(operation.signature, mismatch->rank, mismatch->signature);
  if (!failed_.ok() || now() < probes_.next(queue_.front().begun)) return;
  const auto waits_for = [&](int rank) {
    return std::ranges::any_of(waiters_, [&](const Waiter* w) { return w->peer() == rank; });
  };
  std::string published =
      published_failure(*mesh_, probed_ranks(operation, mesh_->rank(), waits_for));
  if (!published.empty()) return fail(base::invalid_argument(std::move(published)));
  probes_.send(operation, waits_for, now());
}

// The caller closes the mesh later, because a task may be running (abort_if_failed()).
void Engine::fail_all(const Status& why) {
  if (!failed_.ok()) return;
  failed_ = why;
  if (queue_.empty()) return;
  const OperationDescriptor& operation = queue_.front().operation;
  send_failure(*mesh_, operation.communicator, operation.ranks, failed_.message());
}

void Engine::fail_mismatch(const CollectiveSignature& mine, int rank,
                           const CollectiveSignature& theirs) {
  const auto& ranks = queue_.front().operation.ranks;
  const auto number_of = [&](int r) { return std::ranges::find(ranks, r) - ranks.begin(); };
  fail_all(base::invalid_argument(fmt::format("{}: rank {} is in {}, rank {} in {}", name_of(mine),
                                              number_of(mesh_->rank()), describe(mine),
                                              number_of(rank), describe(theirs))));
}

void Engine::fail_at_deadline(const Pending& pending) {
  const OperationDescriptor& operation = pending.operation.point_to_point || queue_.empty()
                                             ? pending.operation
                                             : queue_.front().operation;
  const std::vector<int> missing = operation.point_to_point ? std::vector<int>{operation.peer}
                                                            : probes_.missing_ranks(operation);
  std::string list;
  std::string lost;
  for (const int r : missing) {
    const std::string& why = mesh_->lost(operation.ranks[static_cast<std::size_t>(r)]);
    list += fmt::format("{}{}", list.empty() ? "" : ", ", r);
    const std::string& connect_error =
        mesh_->connect_error(operation.ranks[static_cast<std::size_t>(r)]);
    if (!why.empty()) lost += fmt::format(" (connection to rank {} lost: {})", r, why);
    if (!connect_error.empty())
      lost += fmt::format(" (cannot connect to rank {}: {})", r, connect_error);
  }
  const auto kind = static_cast<Kind>(operation.signature.what & 0xff);
  const std::string what =
      operation.point_to_point
          ? fmt::format("rank {} did not {}", list, kind == Kind::kSend ? "receive" : "send")
          : fmt::format("rank {} of {} did not arrive", list, operation.ranks.size());
  fail(base::deadline_exceeded(
      fmt::format("{}: {} after {:.3f} s in generation {}{}", name_of(operation.signature), what,
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
    base::cpu_relax();
    const TimePoint time = now();
    if (end == TimePoint()) end = time + kSpin;
    if (time >= end) break;
  }
  return is_done(ticket);
}

// The time of the next straggler probe, of the next check for a silent peer, or of the deadline,
// whichever is first.
TimePoint Engine::next_wakeup(const Pending& pending) const {
  return std::min(pending.deadline, queue_.empty() ? now() + mesh_->probe_interval()
                                                   : probes_.next(queue_.front().begun));
}

// Polls until nothing has progressed for a while, because a wake-up costs more. A thread whose
// yield returns late shares its core with computing processes and should sleep, as should one in a
// large operation. Returns the count of the doorbell before the last poll.
std::uint32_t Engine::poll_and_yield(std::uint64_t ticket) {
  const bool is_small = queue_.empty() || queue_.front().operation.signature.bytes <= kSmallBytes;
  TimePoint end{};
  unsigned attempt = 0;
  for (;;) {
    const std::uint32_t seen = mesh_->own().bell.count.load(std::memory_order_acquire);
    const bool moved = advance(!waits_for_local_only());
    if (!failed_.ok() || find(ticket) == nullptr) return seen;
    const TimePoint time = now();
    if (moved || end == TimePoint()) end = time + kYield;
    if (moved) continue;
    if (time < shared_until_ || time >= end || (!is_small && attempt++ >= kYields)) return seen;
    ::sched_yield();
    if (now() - time > kSlowYield) shared_until_ = now() + kSharedCoreTime;
  }
}

// A member that stores what we wait for rings only if it sees us asleep. So we set `sleeping`
// first; the advance() after that finds what was stored before. In the first operation, members of
// other hosts may connect at any time, so we sleep in the mesh, which accepts connections.
void Engine::sleep(std::uint64_t ticket, std::uint32_t seen, TimePoint until) {
  auto& bell = mesh_->own().bell;
  bell.sleeping.store(1, std::memory_order_seq_cst);
  const bool moved = advance();
  if (!moved && failed_.ok() && find(ticket) != nullptr) {
    const bool is_first = queue_.empty() || queue_.front().operation.number == 1;
    const bool sleeps_on_bell = waits_for_local_only() && !is_first;
    const TimePoint probe_time =
        sleeps_on_bell ? waiters_.front()->since() + kProbeDelay : TimePoint();
    if (now() < probe_time) {
      shmem::RealPolicy::wait(bell.count, seen, std::min(until, probe_time));
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
  fail(base::invalid_argument("communicator: destroyed with operations under way"));
  abort_if_failed();
}

}  // namespace regroup::collective::ucx
