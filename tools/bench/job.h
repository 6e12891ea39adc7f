// The ranks of `regroup bench` and what they share: an arena that rank 0 makes and hands to the
// others, and a communicator over it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "regroup/communicator.h"
#include "shmem/arena.h"

namespace regroup::bench {

struct Place {
  int rank = 0;
  int size = 1;
  std::string job;  // the same for these ranks only, on this host
};

// The memory that the ranks need in the arena.
struct Room {
  std::size_t buffer = 0;  // bytes of each of a rank's two buffers and of the shared result
  std::size_t words = 0;   // the most words that a rank passes to share()
};

class Job {
 public:
  // Connects to the other ranks. Blocks up to `timeout`, which also limits every later wait.
  // `agreed` must be the same in all ranks. kResourceExhausted: there is not enough memory;
  // kDeadlineExceeded: a rank has not started; kInvalidArgument: `agreed` differs between ranks.
  [[nodiscard]] static base::Result<std::unique_ptr<Job>> form(const Place& place, const Room& room,
                                                               const std::string& agreed,
                                                               base::Duration timeout);

  [[nodiscard]] int rank() const { return place_.rank; }
  [[nodiscard]] int size() const { return place_.size; }
  [[nodiscard]] const shmem::Arena& arena() const { return arena_; }
  [[nodiscard]] collective::Communicator& communicator() { return *communicator_; }
  [[nodiscard]] base::TimePoint deadline() const { return base::SystemClock().now() + timeout_; }

  [[nodiscard]] base::Status barrier() { return communicator_->barrier(deadline()); }
  // A barrier that returns in all ranks at the same time (tools/bench/start_barrier.h). Returns
  // that time in ns of the steady clock.
  [[nodiscard]] base::Result<std::uint64_t> start_together();
  // Exchanges words between all ranks, each of which passes the same number. Returns them by rank.
  // Does not use the operations that are measured.
  [[nodiscard]] base::Result<std::vector<std::vector<std::uint64_t>>> share(
      std::span<const std::uint64_t> mine);
  // Returns the sum of the ranks' `mine`.
  [[nodiscard]] base::Result<std::uint64_t> sum(std::uint64_t mine);

 private:
  Job(Place place, shmem::Arena arena, std::size_t words, base::Duration timeout);
  [[nodiscard]] base::Status open_communicator();
  [[nodiscard]] std::uint64_t* board(int rank) const;
  [[nodiscard]] char* start_slots() const;

  const Place place_;
  const shmem::Arena arena_;
  const std::size_t words_;
  const base::Duration timeout_;
  std::unique_ptr<collective::Communicator> communicator_;
  std::uint64_t started_ = 0;  // what start_together() returned last
};

}  // namespace regroup::bench
