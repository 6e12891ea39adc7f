// The thread of a carrier process that makes all calls of MPI.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "collective/mpi/frame.h"
#include "tools/mpi/api.h"

namespace regroup::mpi {

using collective::mpi::SharedFrame;

struct ExchangeEvents {  // called by the thread
  std::function<void(std::string version)> ready;
  std::function<void(std::vector<std::byte> frame)> frame;
  std::function<void(std::string why)> failed;
  std::function<std::string(int host)> name_of;
};

class Exchange {
 public:
  // Starts the thread, which loads `library` and calls MPI_Init in a world of `hosts` processes.
  // The MPI has failed if it holds a message to a host for `stall_limit` while it delivers none to
  // or from it.
  Exchange(std::string library, int hosts, base::Duration stall_limit, ExchangeEvents events);
  // Sends a frame to the carrier of host `to`. Does not block. Any thread.
  void send(int to, SharedFrame frame);
  // The thread makes the call as soon as it makes none of MPI. Any thread.
  void visit(std::function<void()> call);
  // True: finish() would wait for nothing but frames under way. Any thread.
  [[nodiscard]] bool connected() const { return connected_.load(); }
  // Waits until all frames have arrived, for up to 1 s. Nothing may be called afterwards.
  void finish();

 private:
  struct Outgoing {
    int to = 0;
    SharedFrame frame;
  };
  struct Sending {
    int to = 0;
    std::size_t request = 0;
    SharedFrame frame;
  };

  void run();
  [[nodiscard]] bool advance(Api& api);
  [[nodiscard]] std::optional<int> stalled_host();

  const std::string library_;
  const int hosts_;
  const base::Duration stall_limit_;
  const ExchangeEvents events_;
  std::atomic<bool> connected_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Outgoing> queue_;                 // protected by mutex_
  std::vector<std::function<void()>> visits_;  // protected by mutex_
  bool finishing_ = false;                     // protected by mutex_
  bool finished_ = false;                      // protected by mutex_
  std::list<Sending> sending_;                 // this and what follows: of the thread
  std::vector<base::Duration> stalled_;        // by host
  base::TimePoint last_look_{};
  std::thread thread_;
};

}  // namespace regroup::mpi
