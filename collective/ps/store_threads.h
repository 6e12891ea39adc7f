// Threads that make the calls of one client at several stores at the same time, so that a call
// takes as long as at the slowest store, and one deadline holds for all of them.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <thread>

namespace regroup::collective::ps {

class StoreThreads {
 public:
  using Call = std::function<void(std::size_t store)>;
  // Starts a thread for each store. They block all signals, and sleep between calls. Throws
  // std::system_error: a thread cannot be started.
  explicit StoreThreads(std::size_t stores);
  ~StoreThreads();
  StoreThreads(const StoreThreads&) = delete;
  StoreThreads& operator=(const StoreThreads&) = delete;
  // Calls call(store) for each of `stores`: for the first in this thread, for each other in the
  // store's thread. Returns once all have returned; then throws the first exception that one of
  // them has thrown. One thread at a time.
  void run(std::span<const std::size_t> stores, const Call& call);

 private:
  struct Worker {
    const Call* call = nullptr;  // under mutex_
    std::condition_variable begun;
    std::thread thread;
  };
  void work(std::size_t store);
  void end();

  std::mutex mutex_;
  std::condition_variable ended_;
  std::size_t running_ = 0;    // calls that workers have not ended; under mutex_, as the next two
  std::exception_ptr thrown_;  // by a call of a worker
  bool ending_ = false;
  std::deque<Worker> workers_;  // by store
};

}  // namespace regroup::collective::ps
