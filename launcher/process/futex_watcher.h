// Detects within 0.1 ms that a thread which holds a robust mutex in shared memory has died. A pidfd
// reports that only after the address space is torn down, 8-20 ms later.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "base/status.h"
#include "proto/world.h"

namespace regroup::process {

// The futex word of a robust mutex as glibc lays it out: the owner's thread id and two flags of the
// kernel.
[[nodiscard]] std::atomic<std::uint32_t>* futex_word(pthread_mutex_t& mutex);

// A thread that waits on all futexes at once (futex_waitv). Without that system call it
// reports no death; SIGCHLD does, some milliseconds later.
class FutexWatcher {
 public:
  using Handler = std::function<void(proto::SlotIndex)>;
  using FailureHandler = std::function<void(const base::Status&)>;
  // `dead` is called on the loop's thread, once per watch(); `failed` there, once, if nothing can
  // be watched.
  FutexWatcher(boost::asio::io_context& loop, Handler dead, FailureHandler failed = {});
  ~FutexWatcher();  // ends the thread
  FutexWatcher(const FutexWatcher&) = delete;
  FutexWatcher& operator=(const FutexWatcher&) = delete;

  // Starts the thread at the first call. The word stays mapped until unwatch() or destruction; at
  // most proto::kMaxSlots - 1 futexes.
  [[nodiscard]] base::Status watch(proto::SlotIndex slot, std::atomic<std::uint32_t>* word);
  // The word is not read any more once this returns.
  void unwatch(proto::SlotIndex slot);

 private:
  struct Watched {
    proto::SlotIndex slot;
    std::atomic<std::uint32_t>* word;
  };

  [[nodiscard]] base::Status start();
  void wait_event();
  void run();
  [[nodiscard]] bool sweep(std::vector<std::uint32_t>& values, std::vector<Watched>& left);
  void interrupt();
  void signal_event();
  void fail(int error);

  boost::asio::posix::stream_descriptor event_;
  Handler dead_;
  FailureHandler failed_;
  std::thread thread_;
  std::mutex mutex_;
  std::map<proto::SlotIndex, std::atomic<std::uint32_t>*> words_;  // guarded by mutex_
  std::vector<proto::SlotIndex> found_;                            // guarded by mutex_
  base::Status failure_;                                           // guarded by mutex_
  std::atomic<std::uint32_t> control_{0};                          // changes when words_ did
  std::atomic<bool> stop_{false};
};

}  // namespace regroup::process
