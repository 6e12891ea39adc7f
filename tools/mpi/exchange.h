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
};

class Exchange {
 public:
  // Starts the thread, which loads `library` and calls MPI_Init in a world of `hosts` processes.
  Exchange(std::string library, int hosts, ExchangeEvents events);
  // Sends a frame to the carrier of host `to`. Does not block. Any thread.
  void send(int to, SharedFrame frame);
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
    std::size_t request = 0;
    SharedFrame frame;
  };

  void run();
  [[nodiscard]] bool advance(Api& api);

  const std::string library_;
  const int hosts_;
  const ExchangeEvents events_;
  std::atomic<bool> connected_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Outgoing> queue_;  // protected by mutex_
  bool finishing_ = false;      // protected by mutex_
  bool finished_ = false;       // protected by mutex_
  std::list<Sending> sending_;  // of the thread
  std::thread thread_;
};

}  // namespace regroup::mpi
