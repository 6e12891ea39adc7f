// Rounds: operation k of a communicator is one round, in which each rank leaves its operation.
// Messages are rounds of two, one for each pair and number.
#include "tests/collective/threaded.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collective/tree_reducer.h"
#include "proto/canonical.h"
#include "tests/collective/reference.h"

namespace regroup::collective::testing {
namespace {

using base::Code;
using base::Result;
using base::Status;

struct Round {
  std::map<int, Operation> operations;  // by rank
  std::map<int, int> colors;            // of a split
  bool done = false;
  bool spoiled = false;  // a rank has gone: it never ends
  Status failed;
};

// Identifies a communicator: generation, and for groups the path of splits and colors that led to
// it.
using Name = std::vector<std::uint64_t>;

struct Hub {
  std::mutex mutex;
  std::condition_variable changed;
  proto::Generation over = 0;
  // Number, from, to.
  std::map<std::tuple<Name, std::uint64_t, int, int>, std::shared_ptr<Round>> rounds;
};

bool same_call(const Operation& a, const Operation& b, int size) {
  return a.kind == b.kind && a.dtype == b.dtype && a.op == b.op && a.root == b.root &&
         a.block(size) == b.block(size);
}

std::string describe(const Operation& o, int size) {
  return fmt::format("{} of {} bytes ({}, {}, root {})", name_of(o.kind), o.block(size),
                     name_of(o.dtype), name_of(o.op), o.root);
}

// Returns the sum of `node` from its partial sums. Adds all leaves at once, as 16-bit types round
// only once.
Bytes sum_of(std::span<const Partial> partials, proto::Interval node, Dtype dtype) {
  const auto known = std::ranges::find(partials, node, &Partial::leaves);
  if (known != partials.end()) return {known->data.begin(), known->data.end()};
  const auto is_leaf = [](const Partial& partial) { return partial.leaves.size() == 1; };
  if (std::ranges::all_of(partials, is_leaf)) {
    std::vector<Bytes> leaves(node.size());
    for (const Partial& partial : partials)
      leaves[partial.leaves.begin].assign(partial.data.begin(), partial.data.end());
    return reference_sum(dtype, leaves, node);
  }
  const std::uint32_t middle = proto::canonical_split(node);
  const Bytes halves[] = {sum_of(partials, {node.begin, middle}, dtype),
                          sum_of(partials, {middle, node.end}, dtype)};
  return reference_sum(dtype, halves, {0, 2});
}

class Threaded final : public Communicator, private TreeReducer {
 public:
  Threaded(std::shared_ptr<Hub> hub, proto::Generation generation, Name name, int rank, int size)
      : hub_(std::move(hub)),
        generation_(generation),
        name_(std::move(name)),
        rank_(rank),
        size_(size) {}
  ~Threaded() override {
    const std::lock_guard lock(hub_->mutex);
    for (auto& [ticket, pending] : pending_) spoil(*pending.round);
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  Result<Request> start(const Operation& operation, base::TimePoint deadline) override;
  TreeReducer& tree_reducer() override { return *this; }
  Result<std::unique_ptr<Communicator>> split(int color, base::TimePoint deadline) override;

 private:
  struct Pending {
    std::shared_ptr<Round> round;
    Operation operation;
    base::TimePoint started;
    base::TimePoint deadline;
  };
  Status reduce(std::span<const Partial> partials, std::uint32_t leaf_count, Output result,
                Dtype dtype, base::TimePoint deadline, const SumBlocks& blocks) override;
  Result<bool> test(std::uint64_t ticket) override;
  Status wait(std::uint64_t ticket) override;
  Result<std::uint64_t> enter(const Operation& operation, base::TimePoint deadline);
  void execute(Round& round) const;
  void execute_message(Round& round, int from, int to) const;
  static void spoil(Round& round) { round.spoiled = true; }
  [[nodiscard]] std::string waits_for(const Pending& pending) const;
  // Under the lock: the outcome, once there is one.
  Result<bool> outcome(std::uint64_t ticket);

  const std::shared_ptr<Hub> hub_;
  const proto::Generation generation_;
  const Name name_;
  const int rank_;
  const int size_;
  std::uint64_t next_ = 1;
  std::uint64_t round_ = 0;
  std::uint64_t splits_ = 0;
  std::map<std::pair<int, int>, std::uint64_t> messages_;
  std::map<std::uint64_t, Pending> pending_;
  Status failed_;
};

void Threaded::execute(Round& round) const {
  const Operation& first = round.operations.begin()->second;
  std::vector<Bytes> inputs;
  for (const auto& [rank, o] : round.operations) {
    if (!same_call(first, o, size_)) {
      round.failed = base::invalid_argument(fmt::format(
          "rank 0 is in {}, rank {} in {}", describe(first, size_), rank, describe(o, size_)));
      return;
    }
    const Input in = o.kind == Kind::kBroadcast ? Input(o.out) : o.in;
    inputs.emplace_back(in.begin(), in.end());
  }
  for (const auto& [rank, o] : round.operations) {
    const Bytes out = reference_output(o, inputs, rank);
    if (!out.empty()) std::memcpy(o.out.data(), out.data(), out.size());
  }
  round.done = true;
}

void Threaded::execute_message(Round& round, int from, int to) const {
  const Operation& send = round.operations[from];
  const Operation& receive = round.operations[to];
  if (send.in.size() != receive.out.size()) {
    round.failed = base::invalid_argument(fmt::format(
        "rank {} sends {} bytes, rank {} wants {}", from, send.in.size(), to, receive.out.size()));
    return;
  }
  if (!send.in.empty()) std::memcpy(receive.out.data(), send.in.data(), send.in.size());
  round.done = true;
}

Result<std::uint64_t> Threaded::enter(const Operation& operation, base::TimePoint deadline) {
  const bool message = operation.kind == Kind::kSend || operation.kind == Kind::kReceive;
  const int from = operation.kind == Kind::kSend ? rank_ : operation.root;
  const int to = operation.kind == Kind::kSend ? operation.root : rank_;
  const std::lock_guard lock(hub_->mutex);
  if (failed_.ok() && hub_->over >= generation_) {
    failed_ = {Code::kRevoked, fmt::format("generation {} is over", generation_)};
  }
  REGROUP_RETURN_IF_ERROR(failed_);
  const auto key = message ? std::tuple(name_, messages_[{from, to}]++, from, to)
                           : std::tuple(name_, round_++, -1, -1);
  auto& round = hub_->rounds[key];
  if (round == nullptr) round = std::make_shared<Round>();
  round->operations[rank_] = operation;
  const std::uint64_t ticket = next_++;
  pending_[ticket] = {round, operation, base::SystemClock().now(), deadline};
  if (static_cast<int>(round->operations.size()) == (message ? 2 : size_)) {
    if (!round->spoiled && message) execute_message(*round, from, to);
    if (!round->spoiled && !message) execute(*round);
    hub_->rounds.erase(key);
    hub_->changed.notify_all();
  }
  return ticket;
}

Result<Request> Threaded::start(const Operation& operation, base::TimePoint deadline) {
  REGROUP_RETURN_IF_ERROR(operation.check(rank_, size_));
  REGROUP_ASSIGN_OR_RETURN(auto ticket, enter(operation, deadline));
  return Request(this, ticket);
}

std::string Threaded::waits_for(const Pending& pending) const {
  const Operation& o = pending.operation;
  if (o.kind == Kind::kSend) return fmt::format("rank {} did not receive", o.root);
  if (o.kind == Kind::kReceive) return fmt::format("rank {} did not send", o.root);
  std::string missing;
  for (int r = 0; r < size_; ++r) {
    if (!pending.round->operations.contains(r))
      missing += fmt::format("{}{}", missing.empty() ? "" : ", ", r);
  }
  return fmt::format("rank {} of {} did not arrive", missing, size_);
}

Result<bool> Threaded::outcome(std::uint64_t ticket) {
  const auto found = pending_.find(ticket);
  if (found == pending_.end()) return true;
  Pending& pending = found->second;
  if (pending.round->done) {
    pending_.erase(found);
    return true;
  }
  if (failed_.ok()) failed_ = pending.round->failed;
  if (failed_.ok() && hub_->over >= generation_) {
    failed_ = {Code::kRevoked, fmt::format("generation {} is over", generation_)};
  }
  const base::TimePoint now = base::SystemClock().now();
  if (failed_.ok() && now >= pending.deadline) {
    failed_ = base::deadline_exceeded(
        fmt::format("{}: {} after {:.3f} s in generation {}", name_of(pending.operation.kind),
                    waits_for(pending),
                    std::chrono::duration<double>(now - pending.started).count(), generation_));
  }
  if (failed_.ok()) return false;
  for (auto& [number, other] : pending_)
    spoil(*other.round);  // nobody shall write into our memory now
  return failed_;
}

Result<bool> Threaded::test(std::uint64_t ticket) {
  const std::lock_guard lock(hub_->mutex);
  return outcome(ticket);
}

Status Threaded::wait(std::uint64_t ticket) {
  std::unique_lock lock(hub_->mutex);
  for (;;) {
    REGROUP_ASSIGN_OR_RETURN(auto done, outcome(ticket));
    if (done) return {};
    hub_->changed.wait_until(lock, pending_.at(ticket).deadline);
  }
}

Status Threaded::reduce(std::span<const Partial> partials, std::uint32_t leaf_count, Output result,
                        Dtype dtype, base::TimePoint deadline, const SumBlocks& blocks) {
  begin_sum(blocks, generation_);
  REGROUP_RETURN_IF_ERROR(barrier(deadline));
  if (rank_ == 0) {
    const Bytes sum = sum_of(partials, {0, leaf_count}, dtype);
    std::memcpy(result.data(), sum.data(), sum.size());
  }
  return barrier(deadline);
}

Result<std::unique_ptr<Communicator>> Threaded::split(int color, base::TimePoint deadline) {
  const std::uint64_t number = splits_++;
  std::vector<int> colors(static_cast<std::size_t>(size_));
  REGROUP_RETURN_IF_ERROR(run(Operation::allgather(std::as_bytes(std::span(&color, 1)),
                                                   std::as_writable_bytes(std::span(colors))),
                              deadline));
  if (color < 0) return std::unique_ptr<Communicator>();
  Name name = name_;
  name.push_back(number);
  name.push_back(static_cast<std::uint64_t>(color));
  const auto rank = std::count(colors.begin(), colors.begin() + rank_, color);
  const auto size = std::count(colors.begin(), colors.end(), color);
  return std::unique_ptr<Communicator>(std::make_unique<Threaded>(
      hub_, generation_, std::move(name), static_cast<int>(rank), static_cast<int>(size)));
}

class ThreadedJob final : public TestJob {
 public:
  explicit ThreadedJob(std::shared_ptr<Hub> hub) : hub_(std::move(hub)) {}

  Result<std::unique_ptr<Communicator>> open(const proto::World& world, int rank) override {
    return std::unique_ptr<Communicator>(std::make_unique<Threaded>(
        hub_, world.generation, Name{world.generation}, world.rank_of(proto::MemberId(rank)),
        static_cast<int>(world.size())));
  }
  void leave(proto::Generation, int) override {}
  void revoke(proto::Generation g) override {
    const std::lock_guard lock(hub_->mutex);
    hub_->over = std::max(hub_->over, g);
    hub_->changed.notify_all();
  }
  void bury(int) override {}
  void replace(int) override {}
  std::unique_ptr<TestJob> in_child() override { return std::make_unique<ThreadedJob>(hub_); }

 private:
  const std::shared_ptr<Hub> hub_;
};

}  // namespace

std::unique_ptr<TestJob> make_threaded_job(int) {
  return std::make_unique<ThreadedJob>(std::make_shared<Hub>());
}

}  // namespace regroup::collective::testing
