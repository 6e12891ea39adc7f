// Tells processes of the host that work of this process on its GPU is done: a thread stores a word
// of host memory once the event after the work has fired. A word thus says that memory is complete,
// whoever reads it next, and the store of a process that dies meanwhile is still true. Nothing
// waits on the device for a word.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collective/cuda/driver.h"

namespace regroup::collective::cuda {

// What to store when some work is done.
struct Mark {
  std::atomic<std::uint64_t>* word;  // in memory that outlives the watcher
  std::uint64_t value;
  std::string work;          // for messages: "leaf 5 of step 812"
  base::TimePoint deadline;  // of the work
};

// Thread-safe; streams are of the context that was current at start().
class Watcher {
 public:
  // Starts the thread. It calls `stored` after each store and after a failure, to wake threads
  // that wait for a word or for status(). Errors are the driver's.
  [[nodiscard]] static base::Result<std::unique_ptr<Watcher>> start(const Driver& driver,
                                                                    std::function<void()> stored);
  // Ends the thread; words of work that is not known to be done are not stored. Does not wait for
  // the device.
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  // For memory that `mark.word` says is complete: sets the word to 0, calls `launch`, which puts
  // work on `stream` that overwrites the memory, and stores the mark when that work is done.
  // `launch`'s error, the driver's, or status(); the word then stays 0. Does not block.
  [[nodiscard]] base::Status overwrite(Mark mark, Stream stream,
                                       const std::function<base::Status()>& launch);
  // Stores the mark when the work that is on `stream` now is done. Errors as of overwrite().
  [[nodiscard]] base::Status store_when_done(Mark mark, Stream stream);
  // Sets `word` to 0. After the return no earlier mark of it is stored.
  void withdraw(std::atomic<std::uint64_t>& word);

  // The first failure: an error of the device, "GPU 1: leaf 5 of step 812: cuEventQuery: ...", or
  // kDeadlineExceeded, "GPU 1: leaf 5 of step 812: not done after 60 s". No word is stored after
  // it.
  [[nodiscard]] base::Status status() const;
  // For a caller that has waited too long for a word: status(), or kDeadlineExceeded with the
  // oldest work that is not done; ok: there is none.
  [[nodiscard]] base::Status overdue() const;

 private:
  struct Watched {
    Mark mark;
    DriverEvent event;
    base::TimePoint since;
  };

  Watcher(const Driver& driver, std::function<void()> stored)
      : driver_(driver), stored_(std::move(stored)) {}
  [[nodiscard]] base::Status prepare();
  [[nodiscard]] base::Result<DriverEvent> take_event();
  [[nodiscard]] base::Status late(const Watched& one, base::TimePoint now) const;
  void run();
  bool poll();
  [[nodiscard]] base::Duration pause() const;

  const Driver driver_;
  const std::function<void()> stored_;
  Context context_ = nullptr;  // constant after prepare()
  DeviceIndex device_ = 0;     // constant after prepare()

  mutable std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::vector<Watched> watched_;
  std::vector<DriverEvent> free_events_;
  base::Status failed_;
  bool ends_ = false;

  std::thread thread_;
};

}  // namespace regroup::collective::cuda
