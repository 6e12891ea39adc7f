// Nothing runs before it is awaited for: the ranks that wait are resumed one after the other, round
// after round, until a round changes nothing.
#include "tests/collective/net/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <coroutine>
#include <cstring>
#include <list>
#include <map>
#include <tuple>
#include <utility>

namespace regroup::collective::testing {
namespace {

// A suspended task, and whether it may go on.
struct Waiting {
  std::coroutine_handle<> task;
  std::function<bool()> ready;
};

// An operation among the ranks of a host, which runs when all of them have started it.
struct LocalRound {
  std::map<int, Operation> operations;  // by local rank
  bool done = false;
};

}  // namespace

struct NetWorld::State {
  std::list<Waiting> waiting;
  std::map<std::tuple<int, int, std::uint64_t>, Bytes> arrived;  // from, to, tag
  std::map<std::tuple<int, int, std::uint64_t>, bool> acked;
  std::vector<std::vector<LocalRound>> rounds;  // by host
  std::string failed;
};

// Awaits `ready`.
struct Condition {
  std::list<Waiting>& waiting;
  std::function<bool()> ready;

  [[nodiscard]] bool await_ready() const { return ready(); }
  void await_suspend(std::coroutine_handle<> task) const { waiting.push_back({task, ready}); }
  void await_resume() const {}
};

class NetWorld::Rank final : public net::Messenger {
 public:
  Rank(NetWorld& world, net::Layout layout)
      : world_(world), state_(*world.state_), layout_(std::move(layout)) {}

  [[nodiscard]] const net::Layout& layout() const { return layout_; }

  net::Task send(int to, net::MessageTag tag, Input data) override {
    const std::tuple key(layout_.rank, to, tag.pack());
    if (state_.arrived.contains(key))
      state_.failed = "two messages with the same tag are under way";
    state_.arrived[key] = Bytes(data.begin(), data.end());
    world_.messages_ += 1;
    if (!tag.needs_ack()) co_return;
    Condition acked{state_.waiting, [this, key] { return state_.acked[key]; }};
    co_await acked;
    state_.acked.erase(key);
  }
  net::Task receive(int from, net::MessageTag tag, Output data) override {
    Bytes message;
    net::Task received = take(from, tag, &message);
    co_await received;
    if (message.size() != data.size())
      state_.failed = "a message of another size than its receiver wants";
    if (!data.empty())
      std::memcpy(data.data(), message.data(), std::min(data.size(), message.size()));
  }
  net::Task receive_up_to(std::size_t limit, int from, net::MessageTag tag,
                          std::vector<std::byte>* data) override {
    net::Task received = take(from, tag, data);
    co_await received;
    if (data->size() > limit) state_.failed = "a message above its limit";
  }
  // Every other message stays where it is, as with UCX.
  net::Task receive_in_place(int from, net::MessageTag tag, std::size_t bytes,
                             net::Received* out) override {
    const std::tuple key(from, layout_.rank, tag.pack());
    Condition arrived{state_.waiting, [this, key] { return state_.arrived.contains(key); }};
    co_await arrived;
    const Bytes& message = state_.arrived[key];
    if (message.size() != bytes)
      state_.failed = "a partial sum of another size than its receiver wants";
    out->borrowed = ++received_ % 2 == 0;
    out->data = message.data();
    if (out->borrowed) co_return;
    out->room = scratch_.get(bytes);
    if (bytes > 0) std::memcpy(out->room.data(), message.data(), bytes);
    out->data = out->room.data();
    state_.arrived.erase(key);
  }
  void release(int from, net::MessageTag tag) override {
    if (state_.arrived.erase({from, layout_.rank, tag.pack()}) != 1)
      state_.failed = "released twice";
  }
  net::Task run_locally(Operation operation) override {
    auto& rounds = state_.rounds[layout_.host];
    const std::size_t index = local_operations_++;
    if (rounds.size() <= index) rounds.resize(index + 1);
    const auto here = static_cast<int>(layout_.local_rank);
    const base::Status status = operation.check(here, static_cast<int>(layout_.local_size()));
    if (!status.ok()) state_.failed = status.message();
    rounds[index].operations[here] = operation;
    if (rounds[index].operations.size() == layout_.local_size() && state_.failed.empty())
      finish(rounds[index]);
    Condition done{state_.waiting, [&rounds, index] { return rounds[index].done; }};
    co_await done;
  }
  net::Task fail(base::Status why) override {
    state_.failed = why.message();
    Condition never{state_.waiting, [] { return false; }};
    co_await never;
  }

  net::Scratch& scratch() { return scratch_; }

 private:
  net::Task take(int from, net::MessageTag tag, Bytes* message) {
    const std::tuple key(from, layout_.rank, tag.pack());
    Condition arrived{state_.waiting, [this, key] { return state_.arrived.contains(key); }};
    co_await arrived;
    *message = std::move(state_.arrived[key]);
    state_.arrived.erase(key);
    if (tag.needs_ack()) state_.acked[key] = true;
  }
  void finish(LocalRound& round) {
    const Operation& first = round.operations.begin()->second;
    std::vector<Bytes> inputs;
    for (const auto& [rank, o] : round.operations) {
      if (o.kind != first.kind || o.dtype != first.dtype || o.op != first.op ||
          o.root != first.root)
        state_.failed = fmt::format("local rank {} runs another operation", rank);
      const Input in = contribution_of(o);
      inputs.emplace_back(in.begin(), in.end());
    }
    for (const auto& [rank, o] : round.operations) {
      const Bytes out = reference_output(o, inputs, rank);
      if (!out.empty()) std::memcpy(o.out.data(), out.data(), out.size());
    }
    round.done = true;
  }

  NetWorld& world_;
  State& state_;
  const net::Layout layout_;
  net::Scratch scratch_;
  std::size_t local_operations_ = 0;
  std::size_t received_ = 0;
};

NetWorld::NetWorld(std::vector<proto::NodeId> nodes) : nodes_(std::move(nodes)) {}
NetWorld::~NetWorld() = default;

std::string NetWorld::run(const std::function<net::Task(net::Exchange&, int rank)>& part) {
  state_ = std::make_unique<State>();
  messages_ = 0;
  std::vector<std::unique_ptr<Rank>> ranks;
  std::vector<net::RankSums> sums;
  for (int rank = 0; rank < size(); ++rank) {
    ranks.push_back(std::make_unique<Rank>(*this, net::Layout::of(nodes_, rank)));
    auto plans = net::RankSums::of(ranks.back()->layout());
    if (!plans.ok()) return plans.status().message();
    sums.push_back(std::move(*plans));
  }
  state_->rounds.resize(ranks[0]->layout().hosts.size());
  std::list<net::Exchange> exchanges;
  std::vector<net::Task> tasks;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    exchanges.emplace_back(*ranks[r], ranks[r]->scratch(), ranks[r]->layout(), sums[r]);
    tasks.push_back(part(exchanges.back(), static_cast<int>(r)));
  }
  for (bool moved = true; moved && state_->failed.empty();) {
    moved = false;
    for (auto at = state_->waiting.begin();
         at != state_->waiting.end() && state_->failed.empty();) {
      if (!at->ready()) {
        ++at;
        continue;
      }
      const auto task = at->task;
      at = state_->waiting.erase(at);
      task.resume();  // may append
      moved = true;
    }
  }
  for (std::size_t r = 0; r < tasks.size() && state_->failed.empty(); ++r) {
    if (!tasks[r].done()) state_->failed = fmt::format("rank {} waits for ever", r);
  }
  if (state_->failed.empty() && !state_->arrived.empty())
    state_->failed = "a message was not received";
  return state_->failed;
}

}  // namespace regroup::collective::testing
