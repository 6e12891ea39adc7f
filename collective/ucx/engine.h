// Runs the operations of the communicators that share a mesh (a communicator and the groups split
// from it): their order, tasks, deadlines and straggler probes, and all waiting. Used by one
// thread, which also runs all tasks. wait() blocks; fail_all() blocks for up to 2 s.
//
// Collective operations run one after the other, point-to-point messages concurrently with them.
// Every failure is final: the engine closes the mesh, after which UCX accesses no memory of
// callers, then destroys all tasks.
#pragma once

#include <coroutine>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collective/core_use.h"
#include "collective/net/task.h"
#include "collective/ucx/operation_descriptor.h"
#include "collective/ucx/peer_mesh.h"
#include "collective/ucx/straggler_probe.h"
#include "regroup/communicator.h"

namespace regroup::collective::ucx {

class Engine;

// A condition that a task awaits. It lives in the coroutine frame of the task.
class Waiter {
 public:
  Waiter(Engine& engine, int peer) : engine_(engine), peer_(peer) {}
  virtual ~Waiter();
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  [[nodiscard]] bool await_ready();
  void await_suspend(std::coroutine_handle<> task);
  void await_resume() const {}

  [[nodiscard]] virtual bool ready() = 0;  // not called again once it has returned true
  [[nodiscard]] int peer() const { return peer_; }
  [[nodiscard]] base::TimePoint since() const { return since_; }
  void resume() { task_.resume(); }

 protected:
  Engine& engine_;

 private:
  const int peer_;  // rank in the World of the member that the condition depends on, or -1
  std::coroutine_handle<> task_;
  base::TimePoint since_{};
};

class Engine {
 public:
  // `cores`: whether the members of this host have a core each.
  Engine(std::shared_ptr<PeerMesh> mesh, std::shared_ptr<const CoreUse> cores);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  [[nodiscard]] PeerMesh& mesh() { return *mesh_; }
  [[nodiscard]] const PeerMesh& mesh() const { return *mesh_; }
  // True if a waiting thread polls for a while before it sleeps, because each member of this host
  // has a core of its own.
  [[nodiscard]] bool spins() const { return cores_->spins(); }
  // Returns ok, the failure that ended the engine, or kRevoked if the generation is over.
  [[nodiscard]] base::Status check();
  // Starts `operation`; returns its ticket, for test() and wait().
  [[nodiscard]] base::Result<std::uint64_t> start(OperationDescriptor operation,
                                                  base::TimePoint deadline);
  [[nodiscard]] base::Result<bool> test(std::uint64_t ticket);
  [[nodiscard]] base::Status wait(std::uint64_t ticket);
  // Fails all operations of this member with `why`, once the running task suspends.
  void fail(base::Status why);
  // As fail(), and sends `why` to the members of the current operation: for ranks that disagree.
  void fail_all(const base::Status& why);
  // fail_all() with the message that this rank runs `mine` while `rank` runs `theirs`.
  void fail_mismatch(const CollectiveSignature& mine, int rank, const CollectiveSignature& theirs);
  // Called when the communicator is destroyed. If it has operations under way, all operations of
  // the engine fail.
  void abandon(const CommunicatorId& communicator);

  // Number of the latest group of split(); all members of that group have the same number.
  std::uint32_t last_group = 0;

 private:
  friend class Waiter;
  struct Pending {
    OperationDescriptor operation;
    std::uint64_t ticket;
    base::TimePoint deadline;
    base::TimePoint begun;  // when start() was called; once its task runs: when that began
    std::optional<net::Task> task = std::nullopt;
  };

  [[nodiscard]] bool advance(bool with_network = true);
  [[nodiscard]] bool waits_for_local_only() const;
  [[nodiscard]] bool resume_ready();
  [[nodiscard]] bool retire();
  [[nodiscard]] bool spin(std::uint64_t ticket);
  [[nodiscard]] std::uint32_t poll_and_yield(std::uint64_t ticket);
  void sleep(std::uint64_t ticket, std::uint32_t seen, base::TimePoint until);
  [[nodiscard]] Pending* find(std::uint64_t ticket);
  [[nodiscard]] bool is_done(std::uint64_t ticket);
  [[nodiscard]] base::TimePoint next_wakeup(const Pending& pending) const;
  void check_peers();
  void fail_at_deadline(const Pending& pending);
  void abort_if_failed();

  const std::shared_ptr<PeerMesh> mesh_;
  const std::shared_ptr<const CoreUse> cores_;
  // Until then do not call sched_yield(), because other processes compute on our core.
  base::TimePoint shared_until_{};
  std::uint64_t next_ticket_ = 1;
  std::deque<Pending> queue_;          // collective operations; the first one is running
  std::list<Pending> point_to_point_;  // all are running
  std::vector<Waiter*> waiters_;
  StragglerProbes probes_;  // for the first operation of queue_
  base::Status failed_;
  // Tickets of the operations that were under way when the engine failed.
  std::vector<std::uint64_t> aborted_;
};

// Awaits a condition that involves rank `peer` of the World (-1: only members of this host).
template <class Condition>
class Until final : public Waiter {
 public:
  Until(Engine& engine, Condition condition, int peer = -1)
      : Waiter(engine, peer), condition_(std::move(condition)) {}
  [[nodiscard]] bool ready() override { return condition_(); }

 private:
  Condition condition_;
};

}  // namespace regroup::collective::ucx
