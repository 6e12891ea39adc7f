// The tasks of a communicator that wait for something.
#pragma once

#include <coroutine>
#include <functional>
#include <list>
#include <utility>

namespace regroup::collective::p2p {

// Used by one thread.
class Runner {
 public:
  // Awaits a condition. The task must not be destroyed before clear().
  class Until {
   public:
    Until(Runner& runner, std::function<bool()> ready)
        : runner_(runner), ready_(std::move(ready)) {}
    [[nodiscard]] bool await_ready() const { return ready_(); }
    void await_suspend(std::coroutine_handle<> task) { runner_.waiting_.push_back({task, ready_}); }
    void await_resume() const {}

   private:
    Runner& runner_;
    const std::function<bool()> ready_;
  };

  // Resumes each task that can go on; true if one could.
  bool resume() {
    bool moved = false;
    for (auto at = waiting_.begin(); at != waiting_.end();) {
      if (!at->ready()) {
        ++at;
        continue;
      }
      const std::coroutine_handle<> task = at->task;
      at = waiting_.erase(at);
      task.resume();  // may append
      moved = true;
    }
    return moved;
  }
  // Forgets all tasks, which are about to be destroyed.
  void clear() { waiting_.clear(); }

 private:
  struct Waiting {
    std::coroutine_handle<> task;
    std::function<bool()> ready;
  };
  std::list<Waiting> waiting_;
};

}  // namespace regroup::collective::p2p
