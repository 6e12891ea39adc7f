// What a Client does its calls with: lanes and a store of this host (client.h), a connection to the
// host of the servers (remote_client.h), or one of these for each of several stores
// (partitioned_client.h). include/regroup/ps.h has the contracts.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>

#include "base/clock.h"
#include "base/status.h"
#include "collective/ps/steps.h"
#include "regroup/ps.h"

namespace regroup::collective::ps {

inline constexpr std::size_t kMaxFailed = 1024;  // pushes whose error nobody has asked for

class Client::Backend {
 public:
  explicit Backend(const ClientOptions& options)
      : client_(options.client), call_within_(options.deadline) {}
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  // True in a child after fork(), which may call this and check_process() only.
  [[nodiscard]] bool in_child() const { return process_ != ::getpid(); }
  // kInvalidArgument: in_child().
  [[nodiscard]] base::Status check_process() const;
  // Of a call that begins now.
  [[nodiscard]] base::TimePoint deadline() const;

  [[nodiscard]] virtual base::Result<Table> open(const TableSpec& spec) = 0;
  [[nodiscard]] virtual const TableSpec& spec_of(Table table) const = 0;
  [[nodiscard]] virtual base::Result<Ticket> push(Table table, std::span<const std::int64_t> ids,
                                                  Input gradients, const Scalars& scalars) = 0;
  [[nodiscard]] virtual base::Result<Ticket> push_dense(Table table, Input gradients,
                                                        const Scalars& scalars) = 0;
  [[nodiscard]] virtual base::Status wait(Ticket ticket, base::TimePoint deadline) = 0;
  [[nodiscard]] virtual base::Status flush(base::TimePoint deadline) = 0;
  [[nodiscard]] virtual std::uint64_t clock() const = 0;
  [[nodiscard]] virtual base::Result<std::uint64_t> advance() = 0;
  // Mode ssp: as advance(), but ends so many turns that the clock is at least `clock`.
  [[nodiscard]] virtual base::Status raise_clock(std::uint64_t clock, base::TimePoint deadline) = 0;
  [[nodiscard]] virtual base::Result<std::optional<Leaf>> next_leaf() = 0;
  [[nodiscard]] virtual base::Status pull(Table table, std::span<const std::int64_t> ids,
                                          Output rows) = 0;
  [[nodiscard]] virtual base::Status pull_dense(Table table, Output values) = 0;
  // Shards of the store, or of all stores together.
  [[nodiscard]] virtual std::uint32_t shards() const = 0;

 private:
  const std::uint64_t client_;  // for messages
  const std::chrono::nanoseconds call_within_;
  const pid_t process_ = ::getpid();
};

class Client::StoreBackend : public Client::Backend {
 public:
  using Backend::Backend;
  // Errors as Client::attach(). Blocks until `deadline`.
  [[nodiscard]] static base::Result<std::unique_ptr<StoreBackend>> attach(
      const ClientOptions& options, base::TimePoint deadline);

  [[nodiscard]] base::Status pull(Table table, std::span<const std::int64_t> ids,
                                  Output rows) final {
    return pull_of_step(table, ids, rows).status();
  }
  [[nodiscard]] base::Status pull_dense(Table table, Output values) final {
    return pull_dense_of_step(table, values).status();
  }
  // As pull(). Mode sync: returns the steps that the rows have, all the same; other modes: 0.
  [[nodiscard]] virtual base::Result<std::uint64_t> pull_of_step(Table table,
                                                                 std::span<const std::int64_t> ids,
                                                                 Output rows) = 0;
  [[nodiscard]] virtual base::Result<std::uint64_t> pull_dense_of_step(Table table,
                                                                       Output values) = 0;

  // Mode sync, of a client of several stores, which takes part in a step by these instead of by
  // next_leaf(). kInvalidArgument: another mode, or no such leaf.

  // Waits until the words of steps are other ones than at `seen`, a StepState::changes, at most
  // until `until`. Without `seen` it does not wait. An error: the store cannot log step `step`.
  [[nodiscard]] virtual base::Result<StepState> step_state(std::uint64_t step,
                                                           std::optional<std::uint64_t> seen,
                                                           base::TimePoint until) = 0;
  // The store's words say from now on that this client computes the leaf that is returned, one of
  // `lacking`. `of_others`: also one that another client computes.
  [[nodiscard]] virtual base::Result<std::optional<std::uint32_t>> claim_leaf(
      std::uint64_t step, const LeafSet& lacking, bool of_others) = 0;
  // Pushes from now on are of `leaf`.
  [[nodiscard]] virtual base::Status begin_leaf(const Leaf& leaf) = 0;
  // The leaf has all pushes, whose errors flush() has returned.
  [[nodiscard]] virtual base::Status end_leaf(base::TimePoint until) = 0;
  // All stores have logged `steps` steps.
  [[nodiscard]] virtual base::Status propose(std::uint64_t steps) = 0;

  // Stores of the job that are lost, a bit each by number, as this store has said so far. Any
  // thread; nothing blocks.
  [[nodiscard]] virtual std::uint64_t known_lost_stores() const = 0;
  // The same, as the store says now. Blocks until `until`, and 2 s more on another host.
  [[nodiscard]] virtual base::Result<std::uint64_t> ask_lost_stores(base::TimePoint until) = 0;
};

// A client that lacks work waits so long before it does that of another one, too: longer than a
// leaf takes, so that clients that are alike do nothing twice. `own_leaf`: the time of its last
// leaf; 0: not known.
[[nodiscard]] base::Duration wait_before_help(base::Duration own_leaf);

// kUnavailable: a client's thread cannot be started.
[[nodiscard]] base::Status no_thread(const std::system_error& error);
// The name of this host, for messages.
[[nodiscard]] std::string this_host();

// Refuse calls whose buffers have other sizes than the table wants, with kInvalidArgument.
[[nodiscard]] base::Status check_push_rows(const TableSpec& spec, std::size_t ids, Input gradients,
                                           const Scalars& scalars);
[[nodiscard]] base::Status check_push_dense(const TableSpec& spec, Input gradients,
                                            const Scalars& scalars);
[[nodiscard]] base::Status check_pull_rows(const TableSpec& spec, std::size_t ids, Output rows);
[[nodiscard]] base::Status check_pull_dense(const TableSpec& spec, Output values);
// Refuses a table number of which there are only `tables`.
[[nodiscard]] base::Status check_number(Table table, std::size_t tables);
// Refuses a dense table where `rows` is true, and the reverse.
[[nodiscard]] base::Status check_kind(const TableSpec& spec, bool rows);
// Mode sync: refuses a push outside a leaf, and one of which leaves have no sum.
[[nodiscard]] base::Status check_sync_push(const TableSpec& spec, bool has_leaf);
// Refuse calls that are not of this mode.
[[nodiscard]] base::Status check_next_leaf(Mode mode);
[[nodiscard]] base::Status check_advance(Mode mode);
[[nodiscard]] base::Status check_raise_clock(Mode mode);
// Refuses a part of a table.
[[nodiscard]] base::Status check_whole(const TableSpec& spec);
// Refuses a spec that no client may open.
[[nodiscard]] base::Status check_open(const TableSpec& spec);

}  // namespace regroup::collective::ps
