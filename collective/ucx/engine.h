// What the communicators of one family (a communicator and the groups split from it) share: the order of
// their operations, the tasks under way, deadlines, the roll call, and all waiting. Owned and used by one
// thread.
//
// Collective operations run one after the other, messages beside them. Every failure is final: the engine
// closes the wire, so that nothing touches the caller's memory any more, then destroys all tasks.
#pragma once

#include <coroutine>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collective/communicator.h"
#include "collective/shm/progress_engine.h"
#include "collective/ucx/task.h"
#include "collective/ucx/wire.h"

namespace regroup::collective {

class Engine;

inline constexpr std::chrono::milliseconds kPatience(10);  // before those are called that are known

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
  [[nodiscard]] core::TimePoint since() const { return since_; }
  void resume() { task_.resume(); }

 protected:
  Engine& engine_;

 private:
  const int peer_;  // rank in the World that must do something, or -1
  std::coroutine_handle<> task_;
  core::TimePoint since_{};
};

// What a communicator tells the engine about the operation that it starts.
struct Job {
  LineId line;
  std::vector<int> ranks;    // of its members in the World, by its own ranks
  std::uint64_t number = 0;  // of the collective operation in its line
  CollectiveSignature call;
  bool message = false;
  int peer = -1;  // of a message: rank in the communicator
  std::function<Task()> begin;
};

class Engine {
 public:
  // `here`: of the members of this host, which knows their cores.
  Engine(std::shared_ptr<Wire> wire, std::shared_ptr<const ProgressEngine> here);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  [[nodiscard]] Wire& wire() { return *wire_; }
  [[nodiscard]] const Wire& wire() const { return *wire_; }
  // Whether who waits looks again for a while first: each member of this host can have a core for itself.
  [[nodiscard]] bool spins() const { return here_->spins(); }
  // What went wrong so far: a failure of before, or kRevoked if the generation is over.
  [[nodiscard]] core::Status check();
  [[nodiscard]] core::Result<std::uint64_t> start(Job job, core::TimePoint deadline);
  [[nodiscard]] core::Result<bool> test(std::uint64_t ticket);
  [[nodiscard]] core::Status wait(std::uint64_t ticket);
  // Ends everything with `why`, after this turn of the tasks.
  void fail(core::Status why);
  // Likewise, and tells the members of the operation under way: the ranks disagree.
  void fail_all(const core::Status& why);
  // A disagreement between us, in `mine`, and `rank` of the operation under way.
  void disagree(const CollectiveSignature& mine, int rank, const CollectiveSignature& theirs);
  // Operations of `line` under way fail, and with them all.
  void forget(const LineId& line);

  std::uint32_t last_group = 0;  // of those that split() has made; the members of a group agree on its number

 private:
  friend class Waiter;
  struct Pending {
    Job job;
    std::uint64_t ticket;
    core::TimePoint deadline;
    core::TimePoint begun;  // until then: queued
    std::optional<Task> task = std::nullopt;
    core::TimePoint called = {};  // last told the others that we are in it
  };

  [[nodiscard]] bool advance(bool by_wire = true);
  [[nodiscard]] bool waits_here() const;
  [[nodiscard]] bool resume_ready();
  [[nodiscard]] bool retire();
  [[nodiscard]] bool spin(std::uint64_t ticket);
  [[nodiscard]] std::uint32_t look_again(std::uint64_t ticket);
  void sleep(std::uint64_t ticket, std::uint32_t seen, core::TimePoint until);
  [[nodiscard]] Pending* find(std::uint64_t ticket);
  [[nodiscard]] bool is_done(std::uint64_t ticket);
  [[nodiscard]] core::TimePoint next_call(const Pending& pending) const;
  [[nodiscard]] core::TimePoint next_look(const Pending& pending) const;
  void look_around();
  // roll.cc
  void hear_failure(const Job& job);
  void hear_last_words(const Job& job);
  void find_stranger(const Job& job);
  [[nodiscard]] bool is_called(const Job& job, int rank) const;
  void call_roll();
  [[nodiscard]] std::vector<int> missing(const Job& job) const;
  void fail_late(const Pending& pending);
  void settle();

  const std::shared_ptr<Wire> wire_;
  const std::shared_ptr<const ProgressEngine> here_;
  core::TimePoint shared_until_{};  // others compute on our core: no yields until then
  std::uint64_t next_ticket_ = 1;
  std::deque<Pending> queue_;    // collective operations; the first is under way
  std::list<Pending> messages_;  // all are
  std::vector<Waiter*> waiters_;
  std::map<int, Transfer> calls_;  // the last one to each rank in the World
  core::Status failed_;
  std::vector<std::uint64_t> undone_;  // what was under way when it failed
};

}  // namespace regroup::collective
