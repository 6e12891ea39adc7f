// Runs calls that may block indefinitely (on a hung NFS mount, for example) on detached threads, so
// that the caller can time out.
#pragma once

#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/status.h"

namespace regroup::base {

// Returns the result of `work`; what it throws becomes kInternal.
[[nodiscard]] inline Status status_of(const std::function<Status()>& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    return internal_error(error.what());
  }
}

// Runs `work` on a detached thread and returns a future of its result. `work` must own everything
// that it uses: a caller that stops waiting leaves the thread behind. If no thread can be created,
// runs `work` in the calling thread. What `work` throws becomes kInternal.
[[nodiscard]] inline std::future<Status> call_detached(const std::function<Status()>& work) {
  auto result = std::make_shared<std::promise<Status>>();
  std::future<Status> status = result->get_future();
  try {
    std::thread([result, work] { result->set_value(status_of(work)); }).detach();
  } catch (const std::system_error&) {
    result->set_value(status_of(work));
  }
  return status;
}

// The same for many calls, one after the other on one thread, which the first call starts. The
// thread ends by itself with its last call after the worker was destroyed; nothing waits for it.
// Used by one thread. In a process that was forked the next call starts another thread.
class DetachedWorker {
 public:
  DetachedWorker() = default;
  ~DetachedWorker() { end(); }
  DetachedWorker(const DetachedWorker&) = delete;
  DetachedWorker& operator=(const DetachedWorker&) = delete;

  [[nodiscard]] std::future<Status> call(std::function<Status()> work) {
    if (!calls_ || process_ != ::getpid()) start();
    std::promise<Status> result;
    std::future<Status> status = result.get_future();
    if (!calls_) {  // no thread can be created
      result.set_value(status_of(work));
      return status;
    }
    const std::lock_guard guard(calls_->mutex);
    calls_->waiting.emplace_back(std::move(work), std::move(result));
    calls_->changed.notify_one();
    return status;
  }

 private:
  struct Calls {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::pair<std::function<Status()>, std::promise<Status>>> waiting;
    bool over = false;  // no more will come
  };

  static void run(const std::shared_ptr<Calls>& calls) {
    for (;;) {
      std::unique_lock lock(calls->mutex);
      calls->changed.wait(lock, [&] { return !calls->waiting.empty() || calls->over; });
      if (calls->waiting.empty()) return;
      auto [work, result] = std::move(calls->waiting.front());
      calls->waiting.pop_front();
      lock.unlock();
      Status status = status_of(work);
      work = nullptr;  // frees what it owns before the caller goes on
      result.set_value(std::move(status));
    }
  }
  void start() {
    calls_ = std::make_shared<Calls>();
    process_ = ::getpid();
    try {
      std::thread(&run, calls_).detach();
    } catch (const std::system_error&) {
      calls_.reset();
    }
  }
  void end() {
    if (!calls_ || process_ != ::getpid()) return;
    const std::lock_guard guard(calls_->mutex);
    calls_->over = true;
    calls_->changed.notify_one();
  }

  std::shared_ptr<Calls> calls_;  // shared with the thread
  pid_t process_ = 0;             // that has the thread
};

}  // namespace regroup::base
