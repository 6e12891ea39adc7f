// A communicator of NCCL in one generation. A thread of its own makes, revokes and aborts it, since
// these calls may hang; it is left alone then.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "collective/cuda/driver.h"
#include "collective/nccl/library.h"

namespace regroup::collective::nccl {

// Bytes to or from a peer.
struct Transfer {
  enum class Direction { kSend, kReceive };
  Direction direction = Direction::kSend;
  int peer = 0;
  cuda::DevicePointer at = 0;
  std::size_t bytes = 0;
};

struct CommSpec {
  Library library;
  cuda::Driver driver;
  cuda::Context context = nullptr;
  int rank = 0;
  int size = 0;
  UniqueId id = {};
  // Memory of the device for `size` + 1 bytes, which outlives the communicator: a byte of each
  // peer.
  cuda::DevicePointer bytes = 0;
  // Of initialisation with the first transfers, and of what ends work.
  base::Duration connect_limit = std::chrono::seconds(30);
  base::Duration stop_limit = std::chrono::seconds(5);
};

// Used by one thread.
class Comm {
  struct Shared;

 public:
  // Begins to connect, at the same time as all other ranks: to NCCL, and by a byte to each peer,
  // since NCCL connects peers when they first send. Does not block.
  explicit Comm(CommSpec spec);
  // Aborts the communicator, without waiting for that.
  ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  enum class Phase { kConnecting, kReady, kFailed };
  // kFailed if the start takes longer than `connect_limit`, even within a call that does not
  // return.
  [[nodiscard]] Phase phase() const;
  // Once the phase is kFailed: why, as a part of a sentence.
  [[nodiscard]] std::string failure() const;

  // Puts the transfers on the stream, at once for all, and returns when they are there. Peers must
  // have the same transfers, in the same order for each pair of ranks. `check`: why to stop
  // waiting. The phase must be kReady.
  [[nodiscard]] base::Status run(std::span<const Transfer> transfers, cuda::Stream stream,
                                 const std::function<base::Status()>& check,
                                 base::TimePoint deadline);

  // The first error that NCCL has found by itself.
  [[nodiscard]] base::Status status() const;
  // Ends work under way: revokes the communicator, or aborts it where the library cannot revoke.
  // kDeadlineExceeded: the call did not return.
  [[nodiscard]] base::Status stop();
  // Its abort, which may outlive it.
  class Ending {
   public:
    [[nodiscard]] bool over() const;
    // True while a call of the start has not returned, so that the abort has not begun.
    [[nodiscard]] bool starting() const;
    // The call of NCCL that has not returned although the abort was wanted `limit` ago, or although
    // the limit of the start has passed; "": none.
    [[nodiscard]] std::string overdue(base::Duration limit) const;

   private:
    friend class Comm;
    explicit Ending(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
    std::shared_ptr<Shared> shared_;
  };
  [[nodiscard]] Ending ending() const { return Ending(shared_); }
  // Aborts. For the end of the process. kDeadlineExceeded as of stop().
  [[nodiscard]] base::Status close();

 private:
  [[nodiscard]] base::Status await_end(bool Shared::*done, const char* what) const;

  const std::shared_ptr<Shared> shared_;
};

}  // namespace regroup::collective::nccl
