// Runs the operations of communicators that share a mesh (a communicator and the groups split from
// it): their order, their tasks, deadlines, straggler probes, and all waiting. Owned and used by
// one thread, in which all tasks run. wait() blocks, fail_all() for up to 2 s.
//
// Collective operations run one after the other, point-to-point messages concurrently with them.
// Every failure is final: the engine closes the mesh, so that nothing accesses the caller's memory
// any more, then destroys all tasks.
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

// Something that a task awaits. It lives in the frame of the task.
class Waiter {
 public:
  Waiter(Engine& engine, int peer) : engine_(engine), peer_(peer) {}
  virtual ~Waiter();
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  [[nodiscard]] bool await_ready();
  void await_suspend(std::coroutine_handle<> task);
  void await_resume() const {}

  [[nodiscard]] virtual bool ready() = 0;  // not asked again once it was true
  [[nodiscard]] int peer() const { return peer_; }
  [[nodiscard]] base::TimePoint since() const { return since_; }
  void resume() { task_.resume(); }

 protected:
  Engine& engine_;

 private:
  const int peer_;  // rank in the World that must do something, or -1
  std::coroutine_handle<> task_;
  base::TimePoint since_{};
};

class Engine {
 public:
  // `cores`: of the members of this host.
  Engine(std::shared_ptr<PeerMesh> mesh, std::shared_ptr<const CoreUse> cores);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  [[nodiscard]] PeerMesh& mesh() { return *mesh_; }
  [[nodiscard]] const PeerMesh& mesh() const { return *mesh_; }
  // A waiting thread polls for a while before it sleeps, because each member of this host has its
  // own core.
  [[nodiscard]] bool spins() const { return cores_->spins(); }
  // ok, the failure that ended the engine, or kRevoked if the generation is over.
  [[nodiscard]] base::Status check();
  [[nodiscard]] base::Result<std::uint64_t> start(OperationDescriptor operation,
                                                  base::TimePoint deadline);
  [[nodiscard]] base::Result<bool> test(std::uint64_t ticket);
  [[nodiscard]] base::Status wait(std::uint64_t ticket);
  // Fails all operations with `why`, once the running task suspends.
  void fail(base::Status why);
  // Likewise, and sends `why` to the members of the current operation: the ranks disagree.
  void fail_all(const base::Status& why);
  // fail_all(): we are in `mine`, and `rank` is in `theirs`, in the current operation.
  void fail_mismatch(const CollectiveSignature& mine, int rank, const CollectiveSignature& theirs);
  // The communicator is destroyed. If it has operations under way, all operations of the engine
  // fail.
  void abandon(const CommunicatorId& communicator);

  // The number of the latest group of split(), on which its members agree.
  std::uint32_t last_group = 0;

 private:
  friend class Waiter;
  struct Pending {
    OperationDescriptor operation;
    std::uint64_t ticket;
    base::TimePoint deadline;
    base::TimePoint begun;  // when it was started; then when its task began
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
  base::TimePoint
      shared_until_{};  // other processes compute on our core; no sched_yield() until then
  std::uint64_t next_ticket_ = 1;
  std::deque<Pending> queue_;          // collective operations; the first one is running
  std::list<Pending> point_to_point_;  // all are running
  std::vector<Waiter*> waiters_;
  StragglerProbes probes_;  // of the first one in the queue
  base::Status failed_;
  // Tickets of the operations that were under way at the failure.
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
