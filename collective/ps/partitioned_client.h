// A client of several stores, each with servers of its own on a host of its own. A table is cut
// into ranges once, and each store has the ranges of its part (TablePart), so a push or a pull is
// one at each store that has some of its keys. docs/design/ps_hosts.md.
//
// With replicas a range is in several stores, the first of which is its home. Pushes go to all that
// live, pulls to the first one. A store that cannot be reached holds up the calls that need it
// until another one says that it is lost: docs/design/ps_replication.md.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collective/ps/backend.h"
#include "collective/ps/partition.h"
#include "collective/ps/store_threads.h"

namespace regroup::collective::ps {

class Client::Partitioned final : public Client::Backend {
 public:
  // `stores`: two or more. Errors as Client::attach(). Blocks until `deadline`.
  [[nodiscard]] static base::Result<std::unique_ptr<Partitioned>> attach(
      std::span<const ClientOptions> stores, base::TimePoint deadline, std::uint32_t replicas = 1);
  ~Partitioned() override;

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
  [[nodiscard]] base::Status pull(Table table, std::span<const std::int64_t> ids,
                                  Output rows) override;
  [[nodiscard]] base::Status pull_dense(Table table, Output values) override;
  [[nodiscard]] std::uint32_t shards() const override;

 private:
  struct Store {
    std::string host;  // of its servers
    std::unique_ptr<StoreBackend> backend;
    std::vector<std::byte> rows;  // of a call's part; kept, since new memory is slow
  };
  struct OpenedTable {
    TablePartition partition;
    std::vector<Table> in_store;
    [[nodiscard]] const TableSpec& spec() const { return partition.spec(); }
  };
  struct Part {
    std::optional<Ticket> ticket;  // nothing: answered, or no keys there, or the store is lost
    base::Status error;            // that the store has answered
  };
  // A push that is not answered at all stores, for all that is known.
  struct Pushed {
    std::vector<Part> parts;  // by store
    StoreSet homes = 0;       // of its keys
    [[nodiscard]] bool answered() const;
  };
  using Pushes = std::map<std::uint64_t, Pushed>;  // by ticket
  using Lock = std::unique_lock<std::timed_mutex>;
  using StoreCall = std::function<base::Status(std::size_t store)>;

  Partitioned(const ClientOptions& first, std::size_t stores, std::uint32_t replicas);
  // Calls at these stores at the same time. By store; errors name the store and its host. With
  // replicas, a call that has found no store waits until `until` whether the store is lost. At lost
  // ones nothing is called, and nothing has failed.
  [[nodiscard]] std::vector<base::Status> at(std::span<const std::size_t> stores,
                                             base::TimePoint until, const StoreCall& call);
  // At all that live.
  [[nodiscard]] base::Status at_all(base::TimePoint until, const StoreCall& call);
  [[nodiscard]] base::Status named(std::size_t store, const base::Status& status) const;
  // Attaches to each store that is not lost.
  [[nodiscard]] base::Status attach_stores(std::span<const ClientOptions> stores,
                                           base::TimePoint deadline);
  // Attaches to these at least; returns those that cannot be reached, whose first error is `why`.
  [[nodiscard]] base::Result<std::vector<std::size_t>> try_stores(
      std::span<const ClientOptions> stores, std::span<const std::size_t> wanted,
      base::TimePoint deadline, base::Status& why);

  // Replicas.
  [[nodiscard]] bool is_lost_store(std::size_t store) const {
    return contains(lost_stores_, store);
  }
  // Of a table of this home, those that live.
  [[nodiscard]] StoreSet living_replicas(std::size_t home) const {
    return replicas_of(home, stores_.size(), replicas_) & ~lost_stores_;
  }
  // The first store of those, of which there is one.
  [[nodiscard]] std::size_t first_replica(std::size_t home) const;
  // Notes the losses that living stores have told of.
  void note_losses();
  void note_loss(std::size_t store);
  // Asks once which stores are lost, but for those that have been late or cannot be reached: a
  // store that is silent on a connection that holds says nothing of itself.
  void ask_others(std::span<const base::Status> answers);
  // Asks the other stores until one says that this one is lost. kDeadlineExceeded: none has.
  // kPeerLost, with the message of `why`: none can be asked.
  [[nodiscard]] base::Status await_loss(std::size_t store, const base::Status& why,
                                        base::TimePoint until);
  // kPeerLost names the stores that had all replicas of ranges of `homes`.
  [[nodiscard]] base::Status check_replicas(StoreSet homes, const std::string& what) const;
  [[nodiscard]] base::Status check_replicas_of_all(const std::string& what) const {
    return check_replicas(~StoreSet{0}, what);
  }

  // All calls wait for those of other threads.
  [[nodiscard]] base::Result<Lock> turn(base::TimePoint until, const std::string& what);
  [[nodiscard]] base::Result<const OpenedTable*> table_at(Table table, bool rows) const;
  // Pushes at these stores; `push` returns the store's ticket.
  [[nodiscard]] base::Result<Ticket> push_at(
      const std::string& table, StoreSet homes, std::span<const std::size_t> stores,
      base::TimePoint until, const std::function<base::Result<Ticket>(std::size_t store)>& push);
  // Waits for these pushes at all stores, and finishes them. kDeadlineExceeded: a store is late.
  [[nodiscard]] base::Status await_pushes(Pushes::iterator first, Pushes::iterator end,
                                          base::TimePoint until);
  // Forgets a push whose outcome is known, except its error.
  void finish(Pushes::iterator push);
  // Finishes the oldest pushes, so that the memory for those that nobody waits for has a bound.
  [[nodiscard]] base::Status settle(base::TimePoint until);
  [[nodiscard]] base::Status flush_locked(base::TimePoint until);
  [[nodiscard]] base::Status begin_at_highest(base::TimePoint until);

  // Mode sync.
  [[nodiscard]] bool is_sync() const { return consistency_.mode == Mode::kSync; }
  // A step at all stores.
  struct Steps {
    std::vector<StepState> stores;                // by store
    std::vector<std::size_t> living;              // those that have answered
    [[nodiscard]] std::uint64_t logged() const;   // by all
    [[nodiscard]] std::uint64_t applied() const;  // by all
  };
  // Reads the words of step `step`, and proposes to each store the steps that all have logged.
  [[nodiscard]] base::Result<Steps> look_at_steps(std::uint64_t step, base::TimePoint until);
  // Waits until words of that store are other ones, at most until `most`. `until`: of the call.
  [[nodiscard]] base::Status await_change(std::size_t store, const StepState& seen,
                                          std::uint64_t step, base::TimePoint most,
                                          base::TimePoint until);
  [[nodiscard]] base::Result<std::optional<Leaf>> begin_leaf(const Steps& steps, bool of_others,
                                                             base::TimePoint until);
  [[nodiscard]] base::Status end_leaf(base::TimePoint until);
  [[nodiscard]] static std::size_t slowest(const Steps& steps, std::uint64_t step);
  [[nodiscard]] base::Status step_is_late(const Steps& steps) const;
  // Calls `pull` at these stores until their rows are of one step. False: a store was lost
  // meanwhile, so that its rows are to be pulled from another one.
  [[nodiscard]] base::Result<bool> pull_of_one_step(
      const std::string& table, std::vector<std::size_t> stores, base::TimePoint until,
      const std::function<base::Result<std::uint64_t>(std::size_t store)>& pull);
  // The same from all stores but lost ones.
  [[nodiscard]] base::Result<bool> try_pull(const OpenedTable& opened,
                                            std::span<const std::int64_t> ids, Output rows,
                                            base::TimePoint until);
  [[nodiscard]] base::Result<bool> try_pull_dense(const OpenedTable& opened, Output values,
                                                  base::TimePoint until);

  const Consistency consistency_;
  const std::uint32_t replicas_;
  std::vector<std::size_t> all_;  // numbers of the stores
  std::timed_mutex turn_;         // of all below, except tables_ and clock_
  std::vector<Store> stores_;
  StoreSet lost_stores_ = 0;
  std::vector<std::size_t> living_;  // stores that are not lost
  Pushes pushes_;
  std::uint64_t next_ticket_ = 1;
  // Errors that no wait() or flush() has returned, by ticket. No other push without an entry in
  // pushes_ has failed.
  std::map<std::uint64_t, base::Status> failed_;
  // Of pushes of which nobody will know whether they are applied: each wait() says so. A store that
  // is lost takes no more pushes, so they are at most kMostPushes for each.
  std::map<std::uint64_t, base::Status> lost_;
  base::Status unreported_;  // of a store's flush() while another one was late, and of no push here
  std::atomic<std::uint64_t> clock_ = 0;
  // Mode sync: the leaf that is computed, since when, and the first push of it that has failed.
  std::optional<Leaf> leaf_;
  base::TimePoint leaf_begun_{};
  base::Duration leaf_time_{};  // of the last one that was whole
  base::Status leaf_failed_;
  mutable std::mutex tables_mutex_;
  std::deque<OpenedTable> tables_;  // a deque, so that references stay
  StoreThreads threads_;            // last: their calls use the rest
};

}  // namespace regroup::collective::ps
