// A client on another host than the servers: sends its calls to the gateway of their host, which
// makes them there (gateway.h). Pushes are sent and not waited for; other calls wait for answers.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "collective/ps/backend.h"
#include "collective/ps/link.h"

namespace regroup::collective::ps {

class Client::Remote final : public Client::StoreBackend {
 public:
  // `options.memory`: the gateway's address. Errors as Client::attach(). Blocks until `deadline`.
  [[nodiscard]] static base::Result<std::unique_ptr<Remote>> connect(const ClientOptions& options,
                                                                     base::TimePoint deadline);
  ~Remote() override;

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
    return lost_stores_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] base::Result<std::uint64_t> ask_lost_stores(base::TimePoint until) override;
  [[nodiscard]] std::uint32_t shards() const override { return shards_; }

 private:
  // A call waits for those of other threads.
  using Lock = std::unique_lock<std::timed_mutex>;

  Remote(const ClientOptions& options, GatewayAddress gateway, base::Fd socket);
  [[nodiscard]] base::Status greet(base::TimePoint until);
  // Ends a turn. `clock`: the least one afterwards; 0: one more than now.
  [[nodiscard]] base::Result<std::uint64_t> advance_to(std::uint64_t clock, base::TimePoint until);
  // Locks, or kDeadlineExceeded.
  [[nodiscard]] base::Result<Lock> turn(base::TimePoint until, const std::string& what) const;
  [[nodiscard]] base::Result<const TableSpec*> spec_at(Table table, bool rows) const;
  // Of `parts`, the request is the first. What is not sent at `until` is kept, and goes before the
  // next request.
  [[nodiscard]] base::Status send(std::vector<Input> parts, base::TimePoint until,
                                  const std::string& what);
  [[nodiscard]] base::Status send_some(std::vector<Input>& parts, base::TimePoint until,
                                       const std::string& what);
  [[nodiscard]] base::Status check_leaf(const TableSpec& spec) const;
  [[nodiscard]] base::Result<Ticket> push_request(const TableSpec& spec, Request request,
                                                  std::span<const std::int64_t> ids,
                                                  Input gradients, base::TimePoint until);
  // Sends a request that has no answer.
  [[nodiscard]] base::Status tell(Request request, const std::string& what);
  // Sends a request and waits for its answer, whose payload goes to `into`. The answer's value.
  [[nodiscard]] base::Result<std::uint64_t> call(Request request, Input payload, Output into,
                                                 base::TimePoint until, const std::string& what);
  [[nodiscard]] base::Result<std::uint64_t> receive(std::uint64_t number, Output into,
                                                    base::TimePoint until, const std::string& what);
  // Takes bytes that have come of the answer that is on its way.
  [[nodiscard]] base::Result<bool> receive_some(std::uint64_t number, Output into);
  [[nodiscard]] base::Result<bool> take(std::byte* to, std::size_t wanted, std::uint64_t& have);
  // Of an answer that has come whole. Nothing: it is not of request `number`.
  [[nodiscard]] std::optional<base::Result<std::uint64_t>> finish_answer(std::uint64_t number);
  // Before the next request the gateway hears that the errors of these pushes have been returned.
  void confirm_errors(std::uint64_t first, std::uint64_t last);
  // Waits until the socket is ready for `events`.
  [[nodiscard]] base::Status wait_for(short events, base::TimePoint until, const std::string& what);
  // Notes that the connection is broken, and says so.
  [[nodiscard]] base::Status broken(const std::string& why);
  [[nodiscard]] std::string server() const;

  const ClientOptions options_;
  const GatewayAddress gateway_;
  std::uint32_t shards_ = 0;        // constant after greet()
  mutable std::timed_mutex mutex_;  // of all below
  const base::Fd socket_;
  base::Status broken_;  // once the connection is
  std::uint64_t next_number_ = 1;
  // What goes before the next request: of requests that reached their deadline, and kTold.
  std::vector<std::byte> unsent_;
  // The answer that is being received: its head, then its text, then its payload.
  Answer answer_;
  std::string text_;
  std::uint64_t have_ = 0;        // bytes of all three
  std::uint64_t settled_ = 0;     // as Answer::settled
  base::Status reason_;           // for which the gateway closes the connection
  std::deque<TableSpec> tables_;  // a deque, so that references stay
  std::atomic<std::uint64_t> clock_ = 0;
  std::atomic<std::uint64_t> lost_stores_ = 0;  // as Answer::lost
  std::optional<Leaf> leaf_;                    // of mode sync
  bool leaf_failed_ = false;                    // a push of it was not sent whole
};

}  // namespace regroup::collective::ps
