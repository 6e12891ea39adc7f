// A client of a parameter server: writes pushes into its lanes and reads rows from the stores of
// its host. include/regroup/ps.h has the contract; this is Client's implementation on the servers'
// host.
#pragma once

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "collective/ps/backend.h"
#include "collective/ps/clocks.h"
#include "collective/ps/reader.h"
#include "collective/ps/server.h"
#include "regroup/ps.h"

namespace regroup::collective::ps {

// The process for which a client calls. A gateway's clients call for processes of other hosts.
struct Caller {
  std::uint64_t process = static_cast<std::uint64_t>(::getpid());
  std::string host = this_host();
  // Once it is true, calls that wait end within kLookForGone, with kRevoked. Null: never.
  const std::atomic<bool>* gone = nullptr;

  static constexpr std::chrono::milliseconds kLookForGone{100};
  [[nodiscard]] bool is_gone() const {
    return gone != nullptr && gone->load(std::memory_order_relaxed);
  }
};

// Takes a lane in each shard and holds the lanes' robust mutexes, which tell servers that the
// client lives. The mutexes belong to a thread of its own, since the kernel gives them up when
// their thread ends, and a caller's thread may end before the client.
class LaneHolder {
 public:
  // `shards` must outlive it. Errors as Client::attach().
  [[nodiscard]] static base::Result<std::unique_ptr<LaneHolder>> take(
      const std::vector<MappedShard>& shards, const ClientOptions& options, const Caller& caller,
      base::TimePoint deadline);
  ~LaneHolder();
  LaneHolder(const LaneHolder&) = delete;
  LaneHolder& operator=(const LaneHolder&) = delete;
  // The number of the lane in shard `shard`.
  [[nodiscard]] std::uint32_t lane(std::size_t shard) const { return lanes_[shard]; }

 private:
  enum class Outcome : std::uint8_t { kTaken, kAllTaken, kBusy, kSameClient, kEnding, kOtherMode };
  LaneHolder(const std::vector<MappedShard>& shards, const ClientOptions& options, Caller caller)
      : shards_(&shards),
        client_(options.client),
        name_(options.name),
        mode_(options.consistency),
        caller_(std::move(caller)) {}
  void run(base::TimePoint deadline);
  [[nodiscard]] base::Status take_all(base::TimePoint deadline);
  [[nodiscard]] base::Status take_one(const Lanes& lanes, base::TimePoint deadline);
  // `why`: of kSameClient and kOtherMode.
  [[nodiscard]] Outcome try_take(const Lanes& lanes, base::Status& why);
  // The same for a lane that client number `client` has.
  [[nodiscard]] Outcome look_at_taken(Lane& lane, std::uint64_t client, base::Status& why) const;

  const std::vector<MappedShard>* shards_;
  const std::uint64_t client_;
  const std::string name_;
  const Consistency mode_;
  const Caller caller_;
  std::vector<std::uint32_t> lanes_;  // taken, by shard
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<base::Status> taken_;  // under mutex_, as ending_
  bool ending_ = false;
  std::thread thread_;
};

class Client::Impl final : public Client::StoreBackend {
 public:
  using Shards = std::shared_ptr<const std::vector<MappedShard>>;
  // Maps the shards of `memory` for reading.
  [[nodiscard]] static base::Result<Shards> map(const ServerMemory& memory);
  // `shards`: of `memory`, whose descriptors may be closed afterwards. Blocks until `deadline`.
  [[nodiscard]] static base::Result<std::unique_ptr<Impl>> attach(const ClientOptions& options,
                                                                  const ServerMemory& memory,
                                                                  Shards shards, Caller caller,
                                                                  base::TimePoint deadline);
  // Of the process that has attached.
  ~Impl() override;

  [[nodiscard]] base::Result<Table> open(const TableSpec& spec) override;
  [[nodiscard]] const TableSpec& spec_of(Table table) const override;
  [[nodiscard]] base::Result<Ticket> push(Table table, std::span<const std::int64_t> ids,
                                          Input gradients, const Scalars& scalars) override;
  [[nodiscard]] base::Result<Ticket> push_dense(Table table, Input gradients,
                                                const Scalars& scalars) override;
  [[nodiscard]] base::Status wait(Ticket ticket, base::TimePoint deadline) override;
  [[nodiscard]] base::Status flush(base::TimePoint deadline) override;
  [[nodiscard]] std::uint64_t clock() const override;
  [[nodiscard]] base::Result<std::uint64_t> advance() override;
  [[nodiscard]] base::Status raise_clock(std::uint64_t clock, base::TimePoint deadline) override;
  [[nodiscard]] base::Result<std::optional<Leaf>> next_leaf() override;
  // The leaf that this client computes does not count: next_leaf() returns `why`, which is an
  // error, and the call after that begins a leaf anew.
  void fail_leaf(const base::Status& why);
  [[nodiscard]] base::Result<std::uint64_t> pull_of_step(Table table,
                                                         std::span<const std::int64_t> ids,
                                                         Output rows) override;
  [[nodiscard]] base::Result<std::uint64_t> pull_dense_of_step(Table table, Output values) override;
  [[nodiscard]] base::Result<StepState> step_state(std::uint64_t step,
                                                   std::optional<std::uint64_t> seen,
                                                   base::TimePoint until) override;
  [[nodiscard]] base::Result<std::optional<std::uint32_t>> claim_leaf(std::uint64_t step,
                                                                      const LeafSet& lacking,
                                                                      bool of_others) override;
  [[nodiscard]] base::Status begin_leaf(const Leaf& leaf) override;
  [[nodiscard]] base::Status end_leaf(base::TimePoint until) override;
  [[nodiscard]] base::Status propose(std::uint64_t steps) override;
  [[nodiscard]] std::uint64_t known_lost_stores() const override {
    return lost_stores(shards_[0].store);
  }
  [[nodiscard]] base::Result<std::uint64_t> ask_lost_stores(base::TimePoint /*until*/) override {
    return known_lost_stores();
  }
  [[nodiscard]] std::uint32_t shards() const override {
    return static_cast<std::uint32_t>(shards_.size());
  }

 private:
  struct RangeOf {
    std::uint32_t shard;
    std::uint32_t id;
    RangeReader reader;
    std::uint64_t first = 0;  // of a dense table: its first element, among those that are here
  };
  struct OpenedTable {
    TableSpec spec;
    std::vector<RangeOf> ranges;  // by position
    // The index of the range that has `position`; ranges.size(): another store has it.
    [[nodiscard]] std::size_t range_of(std::uint64_t position) const;
    [[nodiscard]] base::Status lies_elsewhere(std::uint64_t position) const;
  };
  // A message that has no answer yet.
  struct Unanswered {
    std::uint64_t end;    // Lane::read when it is answered
    std::uint64_t place;  // of the message
    std::uint64_t ticket;
  };
  struct Link {
    std::uint32_t lane = 0;
    std::uint64_t written = 0;  // as Lane::written, which only this process writes
    std::uint64_t taken = 0;    // as Lane::read: all answers up to here are taken
    std::deque<Unanswered> unanswered;
    bool sleeping = false;  // a thread waits on the lane's bell
  };
  // A push, or an open(), that is not applied yet, or whose error nobody has been told.
  struct Pushed {
    std::string table;
    std::vector<std::uint32_t> messages;  // without an answer, by shard
    base::Status status;                  // the first error
    bool sending = true;                  // not all of its messages are written
    bool opening = false;                 // of open(), which alone waits for it
    std::uint64_t attempt = 0;            // mode sync: of the leaf
    [[nodiscard]] bool done() const;
  };
  using Lock = std::unique_lock<std::mutex>;

  Impl(Shards shards, const ClientOptions& options, Caller caller)
      : StoreBackend(options),
        options_(options),
        caller_(std::move(caller)),
        mapped_(std::move(shards)),
        links_(shards_.size()) {}

  // When a thread that waits looks again, whatever its bell says.
  [[nodiscard]] base::TimePoint look_again(base::TimePoint now) const;
  // kInvalidArgument: no table of this client, or dense where `rows` is true and the reverse.
  [[nodiscard]] base::Result<const OpenedTable*> table_at(Table table, bool rows) const;
  [[nodiscard]] base::Result<std::uint64_t> begin_push(const OpenedTable& table);
  // The shards besides 0 that have ranges of a table, which shard 0 has placed.
  [[nodiscard]] base::Result<std::set<std::uint32_t>> other_shards_of(const TableSpec& spec) const;
  [[nodiscard]] base::Result<OpenedTable> find_ranges(const TableSpec& spec) const;
  // Waits until `ready()` is true, looking again after each answer in shard `shard`.
  template <class Ready>
  [[nodiscard]] base::Status wait_until(Lock& lock, std::size_t shard, Ready ready,
                                        base::TimePoint until, const std::string& what);
  // Takes the answers that have come.
  [[nodiscard]] base::Status take_answers(std::size_t shard);
  // A place of `bytes` bytes in the lane, once there is room. It is the caller's until publish().
  [[nodiscard]] base::Result<std::byte*> reserve(Lock& lock, std::size_t shard, std::uint64_t bytes,
                                                 const std::string& what);
  void finish(std::map<std::uint64_t, Pushed>::iterator push);
  [[nodiscard]] base::Result<Ticket> end_push(std::uint64_t ticket, const base::Status& sent);
  void publish(std::size_t shard, const MessageHeader& header, std::uint64_t ticket);
  [[nodiscard]] base::Status send_open(Lock& lock, std::size_t shard, const TableSpec& spec);
  // Keys of one push in the order of positions: the position, and the index in the caller's batch.
  struct Key {
    std::uint64_t position;
    std::size_t at;
  };
  [[nodiscard]] static base::Result<std::vector<Key>> sorted_keys(
      const TableSpec& spec, std::span<const std::int64_t> ids);
  // What one message has of a push: runs of keys, one for each range, all of one shard.
  struct Batch {
    std::vector<PushPart> parts;
    std::vector<std::span<const Key>> keys;
  };
  [[nodiscard]] base::Status send_batch(Lock& lock, std::size_t shard, const OpenedTable& table,
                                        const Batch& batch, Input gradients, const Scalars& scalars,
                                        std::uint64_t ticket);
  [[nodiscard]] base::Status push_shard(Lock& lock, std::size_t shard, const OpenedTable& table,
                                        std::span<const std::span<const Key>> runs, Input gradients,
                                        const Scalars& scalars, std::uint64_t ticket);
  [[nodiscard]] base::Status send_slice(Lock& lock, const OpenedTable& table, const RangeOf& range,
                                        Input gradients, const Scalars& scalars,
                                        std::uint64_t ticket);
  [[nodiscard]] std::string server_of(std::size_t shard) const;
  // Waits until a push is answered; does not look at its status.
  [[nodiscard]] base::Status wait_locked(Lock& lock, std::uint64_t ticket, base::TimePoint until);
  // Waits until all that is in the lanes now is answered; leaves the errors of pushes.
  [[nodiscard]] base::Status wait_for_all(Lock& lock, base::TimePoint until,
                                          const std::string& what);

  // Mode ssp: waits until a pull at this client's clock has what it must have.
  [[nodiscard]] base::Status begin_at_highest(base::TimePoint until);
  // Waits until all that is pushed is applied.
  [[nodiscard]] base::Status end_turn(Lock& lock, base::TimePoint until);
  void count_turns(std::uint64_t clock);
  [[nodiscard]] base::Status await_clocks(const std::string& table);
  // The client that holds up a pull at `clock`.
  [[nodiscard]] std::optional<SlowClient> held_up_by(std::uint64_t clock) const;
  // Sleeps until that may have changed, without `lock`.
  void sleep_until_clocks_change(Lock& lock, std::uint64_t clock, const SlowClient& slow,
                                 base::TimePoint until);
  [[nodiscard]] std::string pull_is_late(const std::string& table, std::uint64_t clock,
                                         const SlowClient& slow) const;
  [[nodiscard]] const Lanes& clock_lanes() const { return shards_[0].lanes; }
  [[nodiscard]] Lane& own_clock_lane() const { return clock_lanes().lane(links_[0].lane); }
  void note_staleness(std::uint64_t clock);

  // Mode sync.
  [[nodiscard]] bool is_sync() const { return options_.consistency.mode == Mode::kSync; }
  [[nodiscard]] StepWords& step_words() const { return clock_lanes().header().steps; }
  [[nodiscard]] std::uint64_t least_applied() const;
  // Steps that all shards have applied, and none has begun to exceed; nothing: a step is being
  // applied.
  [[nodiscard]] std::optional<std::uint64_t> steady_step() const;
  // Calls `read`, which copies rows, until all that it has copied is of one step.
  [[nodiscard]] static base::Status read_rows(const OpenedTable& opened,
                                              std::span<const std::int64_t> ids, Output rows);
  template <class Read>
  [[nodiscard]] base::Result<std::uint64_t> pull_of_one_step(const std::string& table, Read read);
  // The header of a message, of `leaf` if there is one.
  [[nodiscard]] MessageHeader header_of(MessageKind kind, std::uint64_t bytes,
                                        const std::optional<Leaf>& leaf) const;
  // Refuses to send more of a push whose leaf has ended meanwhile.
  [[nodiscard]] base::Status check_leaf_of(std::uint64_t ticket) const;
  void begin(const Leaf& leaf);
  [[nodiscard]] base::Status end_leaf_locked(Lock& lock, base::TimePoint until);
  // A leaf of those for which lacks(leaf) is true; claims it, as claim_leaf().
  template <class Lacks>
  [[nodiscard]] std::optional<std::uint32_t> claim_where(std::uint64_t step, bool of_others,
                                                         Lacks lacks);
  [[nodiscard]] bool lacks(std::uint64_t step, std::uint32_t leaf) const;
  [[nodiscard]] base::Status step_failure(std::uint64_t step) const;
  [[nodiscard]] std::string step_is_late() const;
  // Sleeps until a word of a step differs from what it was when `changes` was read.
  void sleep_until_step_changes(Lock& lock, std::uint64_t changes, base::TimePoint until);

  const ClientOptions options_;
  const Caller caller_;
  const Shards mapped_;
  const std::vector<MappedShard>& shards_ = *mapped_;
  std::unique_ptr<LaneHolder> holder_;
  mutable std::mutex mutex_;  // of all below
  std::condition_variable progress_;
  std::vector<Link> links_;
  std::deque<OpenedTable>
      tables_;  // a deque, so that pulls may read entries while others are added
  std::map<std::uint64_t, Pushed> pushes_;  // by ticket
  std::size_t failed_ = 0;                  // entries of pushes_ with an error, all answered
  std::uint64_t next_ticket_ = 1;
  std::uint64_t next_number_ = 1;
  std::uint64_t clock_ = 0;
  std::uint64_t may_pull_at_ = 0;  // clock + 1 of the last turn whose pulls need not wait
  bool waits_for_clock_ = false;   // a thread sleeps on Lane::clock_bell
  // Mode sync. The leaf that is being computed, since when, and its pushes, by shard.
  std::optional<Leaf> leaf_;
  base::TimePoint leaf_begun_{};
  std::vector<std::uint64_t> leaf_pushes_;
  base::Status leaf_failed_;  // of the first push of it that is not all in the lanes
  std::uint64_t attempt_ = 0;
  bool of_several_ = false;     // leaves are of steps of several stores
  base::Duration leaf_time_{};  // of the last one that was whole
};

}  // namespace regroup::collective::ps
