// A server of a parameter server: for each of its shards a thread that is the writer of the shard's
// store and reads the lanes of its clients. It may be killed at any instruction: the next server
// waits for the store's lock, applies what the log has, and reads on where the dead one stopped.
// The agent says in the stores which server has which shard; a shard moves in the same way.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collective/ps/handover.h"
#include "collective/ps/lane.h"
#include "collective/ps/step_sums.h"
#include "collective/ps/store.h"

namespace regroup::collective::ps {

// A mapping of a shard's memory. kDataLoss: it is none.
struct MappedShard {
  [[nodiscard]] static base::Result<MappedShard> open(const ShardMemory& memory,
                                                      StoreMemory::Mode mode);
  StoreMemory store;
  Lanes lanes;
};

// While it is held no shard of the host applies a step of mode sync, so all tables are of one step.
// Steps go on when the holder's process dies.
class StepHold {
 public:
  // Takes it, and waits until a step that may be applied is applied in all shards. `shards` are
  // mapped for writing and must outlive it. Where no server does that, applies it itself.
  // kDeadlineExceeded: another process holds it, or a server applies no step, until `deadline`.
  [[nodiscard]] static base::Result<StepHold> take(std::span<const MappedShard> shards,
                                                   base::TimePoint deadline);
  StepHold(StepHold&& other) noexcept : shards_(std::exchange(other.shards_, {})) {}
  StepHold& operator=(StepHold&&) = delete;
  ~StepHold();
  // Steps that all tables have.
  [[nodiscard]] std::uint64_t step() const;
  // Steps that all shards have logged, of which those of several stores need not be applied.
  [[nodiscard]] std::uint64_t logged() const;
  // All stores have logged `steps` steps, and hold them: applies those here. Errors as take().
  [[nodiscard]] base::Status agree(std::uint64_t steps, base::TimePoint deadline) const;
  // True if clients take steps, or have.
  [[nodiscard]] bool has_steps() const;

 private:
  explicit StepHold(std::span<const MappedShard> shards) : shards_(shards) {}
  // Waits until step() steps are applied in all shards.
  [[nodiscard]] base::Status await_applied(base::TimePoint deadline) const;
  std::span<const MappedShard> shards_;
};
// Makes empty shards, which no server has yet, those of tables that have `step` steps.
void restore_step(std::span<const MappedShard> shards, std::uint64_t step);

// Serves one shard. One thread, the one that called attach().
class ShardServer {
 public:
  // Waits for the store's lock of shard `shard` until `deadline`, attaches, applies the pushes of
  // the log, begins the next epoch of each range. `shards`, all of the host, must outlive it.
  // kDeadlineExceeded: another server lives. kDataLoss: the store is damaged.
  [[nodiscard]] static base::Result<std::unique_ptr<ShardServer>> attach(
      std::span<const MappedShard> shards, std::size_t shard, base::TimePoint deadline);
  // Answers messages until `stop` is true or the store is another server's than `server`; a
  // thread that changes one of them then rings the bell of the lanes. An error means that the store
  // is damaged.
  [[nodiscard]] base::Status serve(const std::atomic<bool>& stop, std::uint32_t server);
  // Answers what is written now; returns the number of messages.
  [[nodiscard]] base::Result<std::size_t> poll();
  // Frees the lanes of clients that have ended, whose messages are all answered.
  void free_lanes();
  // Makes this shard's ranges of a table, or finds them. Shard 0 comes first. kInvalidArgument: the
  // table is there with another spec. kResourceExhausted: there is no room for it.
  [[nodiscard]] base::Status open_table(const TableSpec& spec);
  [[nodiscard]] Store& store() { return *store_; }

 private:
  ShardServer(std::span<const MappedShard> shards, std::size_t shard, ShardLock lock,
              std::unique_ptr<Store> store);
  [[nodiscard]] base::Result<std::size_t> poll_lane(std::uint32_t number);
  [[nodiscard]] base::Status answer(std::uint32_t number, std::uint64_t place,
                                    const MessageHeader& header);
  // The shard of each range of a table. The server of shard 0 decides, once. kResourceExhausted: a
  // shard has no room for its part; the table has no place then.
  [[nodiscard]] base::Result<std::vector<std::uint32_t>> place(
      const TableSpec& spec, std::span<const PositionRange> ranges);
  [[nodiscard]] base::Status check_room(const TableSpec& spec,
                                        std::span<const std::uint32_t> placed);
  [[nodiscard]] base::Status push(std::uint64_t client, std::byte* message,
                                  const MessageHeader& header);
  [[nodiscard]] base::Status push_part(const Push& push, Range& range);

  // Mode sync. What a lane has pushed of the leaf that its client computes.
  struct OpenLeaf {
    std::uint64_t attempt = 0;
    std::uint64_t pushes = 0;  // taken
    ShardGradients gradients;
  };
  [[nodiscard]] StepWords& steps() const { return shard_->lanes.header().steps; }
  // False if the step is over here, so that nothing of it counts; begins its sums otherwise.
  // kInvalidArgument: it has another number of leaves.
  [[nodiscard]] base::Result<bool> takes_step(const MessageHeader& header);
  [[nodiscard]] base::Status take_push(std::uint32_t number, std::byte* message,
                                       const MessageHeader& header);
  [[nodiscard]] base::Status end_leaf(std::uint32_t number, const MessageHeader& header);
  // Whether all leaves of the step are here, and it is this shard's turn to log it.
  [[nodiscard]] bool may_log_step() const;
  // Writes the sums of the step to the log; of shard 0, unless the steps are on hold.
  void log_step();
  [[nodiscard]] base::Status append_sums(const ShardGradients& sums, std::uint64_t step);
  // Whether all shards have logged a step that is not applied here.
  [[nodiscard]] bool may_apply_step() const;
  [[nodiscard]] base::Status apply_step();
  // Whether clients have seen that all stores have logged a step of which this store does not know.
  [[nodiscard]] bool may_agree() const;
  // Of shard 0: notes it, unless the steps are on hold.
  void agree();
  // Says that a step's words have changed.
  void wake_clients() const;
  // Notes the client that has taken a lane. kDataLoss: the lane names another one now, or one that
  // has another lane.
  [[nodiscard]] base::Status know_owner(std::uint32_t number);
  void refuse_lane(Lane& lane, const base::Status& why);
  void free_lane(std::uint32_t number);

  std::span<const MappedShard> shards_;  // the store of shard 0 says where ranges lie
  const MappedShard* shard_;             // the one that it serves
  ShardLock lock_;
  std::unique_ptr<Store> store_;
  std::vector<std::uint64_t> positions_;  // of the part that is pushed
  // Of each lane the client that this server found in it first, + 1; 0: none. All processes of the
  // host can write Lane::client, and pushes count under this number.
  std::vector<std::uint64_t> owners_;
  std::vector<OpenLeaf> open_leaves_;  // by lane
  std::optional<StepSums> sums_;       // of step `logged`
  base::TimePoint lanes_freed_{};
};

// Server `number` of a host: those of the host's shards that the agent has given to it, now or
// later, each with a thread. One thread at a time calls its functions, except stop().
class Server {
 public:
  // Starts the threads; each waits for its store's lock for at most `takeover`. `memory`: all
  // shards of the host; its descriptors may be closed afterwards. A new store is server 0's.
  [[nodiscard]] static base::Result<std::unique_ptr<Server>> start(const ServerMemory& memory,
                                                                   std::chrono::seconds takeover,
                                                                   std::uint32_t number = 0);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  // Asks all threads to end after the message that each is answering. Any thread.
  void stop();
  // Blocks until all threads have ended; returns the first error, after which all others stop.
  [[nodiscard]] base::Status wait();

 private:
  Server(std::vector<MappedShard> shards, std::uint32_t number)
      : shards_(std::move(shards)), number_(number) {}
  // Starts a thread for each shard that is this server's and has none, until stop().
  void watch(std::chrono::seconds takeover);
  void run(std::size_t shard, std::chrono::seconds takeover);
  [[nodiscard]] bool has(std::size_t shard) const {
    return server_of(shards_[shard].store) == number_;
  }

  const std::vector<MappedShard> shards_;
  const std::uint32_t number_;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  base::Status first_error_;  // under mutex_
  std::thread watch_;
};

// Says which server has each shard, by shard, and wakes all servers. `shards` are mapped for
// writing. Any process; one at a time.
void assign_shards(std::span<const MappedShard> shards, std::span<const std::uint32_t> server_of);

// Tells clients of this store that other stores of the job are lost, a bit each by number: calls go
// on with the replicas of their ranges. It holds for ever, and a lost store must answer nobody any
// more. `shards` are mapped for writing. Any process, any thread; nothing blocks.
void note_lost_stores(std::span<const MappedShard> shards, std::uint64_t lost);

}  // namespace regroup::collective::ps
