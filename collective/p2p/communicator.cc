// Turns operations into tasks, and advances the tasks while somebody waits.
#include "collective/p2p/communicator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "collective/net/collectives.h"
#include "collective/p2p/messenger.h"

namespace regroup::collective {
namespace p2p {
namespace {

using base::Result;
using base::Status;
using base::TimePoint;

constexpr std::chrono::milliseconds kProbeDelay(10);
constexpr std::chrono::milliseconds kYield(1);  // then a waiting thread sleeps between two looks
constexpr std::chrono::microseconds kPause(50);
constexpr std::chrono::seconds kByeTimeout(2);

TimePoint now() { return base::SystemClock().now(); }

bool is_message(Kind kind) { return kind == Kind::kSend || kind == Kind::kReceive; }

}  // namespace

P2pCommunicator::P2pCommunicator(std::unique_ptr<PointToPoint> messages, net::Layout layout,
                                 net::RankSums rank_sums, std::shared_ptr<Family> family)
    : messages_(std::move(messages)),
      layout_(std::move(layout)),
      rank_sums_(std::move(rank_sums)),
      family_(std::move(family)),
      inbox_(*messages_, [this](int from, const Header& header) { on_header(from, header); }),
      sent_(static_cast<std::size_t>(layout_.size)),
      received_(sent_.size()),
      heard_(sent_.size()) {
  family_->push_back(this);
}

P2pCommunicator::~P2pCommunicator() {
  std::erase(*family_, this);
  if (!queue_.empty() || !point_to_point_.empty())
    fail(base::invalid_argument("communicator: destroyed with operations under way"));
  abort_if_failed();
  say_bye();
}

// MPI wants every message received: probes may be under way to ranks that need none.
void P2pCommunicator::say_bye() {
  for (int r = 0; r < size(); ++r) {
    if (r != rank()) inbox_.send(r, {.kind = HeaderKind::kBye}, {});
  }
  if (!failed_.ok()) return;
  heard_[static_cast<std::size_t>(rank())].bye = true;
  const TimePoint end = now() + kByeTimeout;
  while (!std::ranges::all_of(heard_, &Heard::bye) && messages_->error().empty() && now() < end) {
    if (!inbox_.progress()) ::sched_yield();
  }
}

Result<std::unique_ptr<Communicator>> P2pCommunicator::open(
    std::unique_ptr<PointToPoint> messages) {
  return open(std::move(messages), std::make_shared<Family>());
}

// Each rank is a host of its own: nothing is shared.
Result<std::unique_ptr<Communicator>> P2pCommunicator::open(std::unique_ptr<PointToPoint> messages,
                                                            std::shared_ptr<Family> family) {
  if (!messages->error().empty()) return base::peer_lost(messages->error());
  std::vector<proto::NodeId> hosts(static_cast<std::size_t>(messages->size()));
  std::iota(hosts.begin(), hosts.end(), 0);
  net::Layout layout = net::Layout::of(hosts, messages->rank());
  REGROUP_ASSIGN_OR_RETURN(auto sums, net::RankSums::of(layout));
  return std::unique_ptr<Communicator>(new P2pCommunicator(std::move(messages), std::move(layout),
                                                           std::move(sums), std::move(family)));
}

P2pCommunicator::Pending P2pCommunicator::next_collective(const CollectiveSignature& signature,
                                                          TimePoint deadline) {
  return {.number = ++number_, .signature = signature, .deadline = deadline};
}

P2pCommunicator::Pending P2pCommunicator::next_message(const Operation& o, TimePoint deadline) {
  auto& numbers = o.kind == Kind::kSend ? sent_ : received_;
  return {.number = ++numbers[static_cast<std::size_t>(o.root)],
          .signature = signature_of(o, size()),
          .peer = o.root,
          .deadline = deadline};
}

Result<Request> P2pCommunicator::start(const Operation& o, TimePoint deadline) {
  REGROUP_RETURN_IF_ERROR(o.check(rank(), size()));
  if (!failed_.ok()) return failed_;
  Pending pending = is_message(o.kind) ? next_message(o, deadline)
                                       : next_collective(signature_of(o, size()), deadline);
  pending.begin = [this, o, signature = pending.signature, number = pending.number] {
    return is_message(o.kind) ? message(o, signature, number) : collective(o, signature, number);
  };
  return Request(this, enqueue(std::move(pending)));
}

std::uint64_t P2pCommunicator::enqueue(Pending pending) {
  const std::uint64_t ticket = pending.ticket = next_ticket_++;
  pending.begun = now();
  if (pending.peer >= 0)
    point_to_point_.push_back(std::move(pending));
  else
    queue_.push_back(std::move(pending));
  while (advance_all()) {
  }
  return ticket;
}

net::Task P2pCommunicator::collective(Operation o, CollectiveSignature signature,
                                      std::uint64_t number) {
  Messenger messenger(inbox_, runner_, number, signature,
                      [this](const Status& why) { fail_all(why); });
  net::Exchange x(messenger, scratch_, layout_, rank_sums_);
  co_await net::run_collective(x, o);
}

net::Task P2pCommunicator::sum(const net::TreeSum& s, CollectiveSignature signature,
                               std::uint64_t number) {
  Messenger messenger(inbox_, runner_, number, signature,
                      [this](const Status& why) { fail_all(why); });
  net::Exchange x(messenger, scratch_, layout_, rank_sums_);
  co_await net::tree_sum(x, s);
}

net::Task P2pCommunicator::message(Operation o, CollectiveSignature signature,
                                   std::uint64_t number) {
  if (o.kind == Kind::kSend) {
    const Inbox::Sent sent =
        inbox_.send(o.root, {HeaderKind::kMessage, number, 0, signature}, o.in);
    co_await Runner::Until(runner_, [&sent] { return *sent; });
    co_return;
  }
  const Key key{o.root, HeaderKind::kMessage, number, 0};
  inbox_.want(key, o.out);
  Incoming& incoming = inbox_.find(key);
  co_await Runner::Until(runner_, [&incoming] { return incoming.complete; });
  if (incoming.bytes != o.out.size()) {
    fail_all(base::invalid_argument(fmt::format("message: rank {} sent {} bytes, rank {} wants {}",
                                                o.root, incoming.bytes, rank(), o.out.size())));
    co_await Runner::Until(runner_, [] { return false; });
  }
  if (!incoming.is_wanted && incoming.bytes != 0)
    std::memcpy(o.out.data(), incoming.room.data(), incoming.bytes);
  inbox_.drop(key);
}

Status P2pCommunicator::reduce(std::span<const Partial> partials, std::uint32_t leaf_count,
                               Output result, Dtype dtype, TimePoint deadline,
                               const SumBlocks& blocks) {
  REGROUP_RETURN_IF_ERROR(check_partials(partials, result, dtype));
  if (!failed_.ok()) return failed_;
  net::TreeNodes nodes;
  net::PartialSums inputs;
  for (const Partial& partial : partials) {
    nodes.push_back(partial.leaves);
    inputs.push_back(partial.data.data());
  }
  REGROUP_ASSIGN_OR_RETURN(auto here, net::plan_merge(std::span(&nodes, 1), leaf_count));
  const net::TreeSum s{leaf_count,       result,           net::Arithmetic::of(dtype, Op::kSum),
                       blocks,           /*generation=*/1, std::move(here),
                       std::move(inputs)};
  Pending pending =
      next_collective(tree_reduce_signature(dtype, leaf_count, result.size()), deadline);
  pending.begin = [this, &s, signature = pending.signature, number = pending.number] {
    return sum(s, signature, number);
  };
  return wait(enqueue(std::move(pending)));
}

// Late ranks are told by the barrier, since MPI's split has no deadline.
Result<std::unique_ptr<Communicator>> P2pCommunicator::split(int color, TimePoint deadline) {
  REGROUP_RETURN_IF_ERROR(run(Operation::barrier(), deadline));
  std::unique_ptr<PointToPoint> part = messages_->split(color);
  if (!messages_->error().empty()) {
    fail(base::peer_lost(messages_->error()));
    abort_if_failed();
    return failed_;
  }
  if (part == nullptr) return std::unique_ptr<Communicator>();
  return open(std::move(part), family_);
}

bool P2pCommunicator::advance_all() {
  bool moved = false;
  for (P2pCommunicator* each : Family(*family_)) moved = each->advance() || moved;
  return moved;
}

bool P2pCommunicator::advance() {
  if (!failed_.ok()) return false;
  bool moved = inbox_.progress();
  if (!messages_->error().empty()) fail(base::peer_lost(messages_->error()));
  for (int r = 0; r < size() && failed_.ok(); ++r) {
    if (!heard_[static_cast<std::size_t>(r)].failed) continue;
    const Incoming& why = inbox_.find({r, HeaderKind::kFailure});
    if (why.complete)
      fail(base::invalid_argument(
          {reinterpret_cast<const char*>(why.room.data()), why.room.size()}));
  }
  for (Pending& pending : point_to_point_) {
    if (!pending.task && failed_.ok()) pending.task.emplace(pending.begin());
  }
  if (!queue_.empty() && !queue_.front().task && failed_.ok()) {
    Pending& first = queue_.front();
    first.begun = now();
    for (int r = 0; r < size(); ++r) {
      auto& ahead = heard_[static_cast<std::size_t>(r)].ahead;
      const auto theirs = ahead.find(first.number);
      if (theirs != ahead.end()) compare(r, theirs->second);
      ahead.erase(ahead.begin(), ahead.upper_bound(first.number));
    }
    if (failed_.ok()) first.task.emplace(first.begin());
  }
  moved = (failed_.ok() && runner_.resume()) || moved;
  moved = (failed_.ok() && retire()) || moved;
  if (failed_.ok()) probe();
  abort_if_failed();
  return moved && failed_.ok();
}

bool P2pCommunicator::retire() {
  const auto is_done = [](const Pending& p) { return p.task && p.task->done(); };
  bool moved = std::erase_if(point_to_point_, is_done) > 0;
  if (!queue_.empty() && is_done(queue_.front())) {
    queue_.pop_front();
    moved = true;
  }
  return moved;
}

void P2pCommunicator::on_header(int from, const Header& header) {
  Heard& heard = heard_[static_cast<std::size_t>(from)];
  if (header.kind == HeaderKind::kFailure) heard.failed = true;
  if (header.kind == HeaderKind::kBye) heard.bye = true;
  if (header.kind != HeaderKind::kData && header.kind != HeaderKind::kProbe) return;
  heard.number = std::max(heard.number, header.number);
  const bool runs = !queue_.empty() && queue_.front().task;
  const std::uint64_t current = queue_.empty() ? number_ : queue_.front().number;
  if (runs && header.number == current)
    compare(from, header.signature);
  else if (header.number > current || (header.number == current && !queue_.empty()))
    heard.ahead[header.number] = header.signature;
}

// That rank is in the operation of the first of the queue.
void P2pCommunicator::compare(int from, const CollectiveSignature& theirs) {
  const CollectiveSignature& mine = queue_.front().signature;
  if (mine == theirs || !is_valid_signature(theirs)) return;
  fail_all(base::invalid_argument(fmt::format("{}: rank {} is in {}, rank {} in {}", name_of(mine),
                                              rank(), describe(mine), from, describe(theirs))));
}

// Tells all that this rank has arrived: not all ranks exchange messages in each operation.
void P2pCommunicator::probe() {
  if (queue_.empty()) return;
  Pending& first = queue_.front();
  if (first.probed || !first.task || now() < first.begun + kProbeDelay) return;
  first.probed = true;
  for (int r = 0; r < size(); ++r) {
    if (r != rank()) inbox_.send(r, {HeaderKind::kProbe, first.number, 0, first.signature}, {});
  }
}

// The tasks are destroyed later, because one may be running.
void P2pCommunicator::fail(const Status& why) {
  if (failed_.ok()) failed_ = why;
}

void P2pCommunicator::fail_all(const Status& why) {
  if (!failed_.ok()) return;
  failed_ = why;
  for (int r = 0; r < size(); ++r) {
    if (r != rank())
      inbox_.send(r, {.kind = HeaderKind::kFailure}, std::as_bytes(std::span(why.message())));
  }
}

void P2pCommunicator::fail_at_deadline(const Pending& pending) {
  const Pending& late = pending.peer >= 0 || queue_.empty() ? pending : queue_.front();
  std::vector<int> missing;
  for (int r = 0; r < size() && late.peer < 0; ++r) {
    if (r != rank() && heard_[static_cast<std::size_t>(r)].number < late.number)
      missing.push_back(r);
  }
  std::string what = "not complete";
  if (late.peer >= 0) {
    const bool sends = static_cast<Kind>(late.signature.what & 0xff) == Kind::kSend;
    what = fmt::format("rank {} did not {}", late.peer, sends ? "receive" : "send");
  } else if (!missing.empty()) {
    what = fmt::format("rank {} of {} did not arrive", fmt::join(missing, ", "), size());
  }
  fail(base::deadline_exceeded(
      fmt::format("{}: {} after {:.3f} s", name_of(late.signature), what,
                  std::chrono::duration<double>(now() - pending.begun).count())));
  abort_if_failed();
}

void P2pCommunicator::abort_if_failed() {
  if (failed_.ok() || (queue_.empty() && point_to_point_.empty())) return;
  for (const Pending& p : queue_) aborted_.push_back(p.ticket);
  for (const Pending& p : point_to_point_) aborted_.push_back(p.ticket);
  inbox_.close();
  runner_.clear();
  queue_.clear();
  point_to_point_.clear();
}

P2pCommunicator::Pending* P2pCommunicator::find(std::uint64_t ticket) {
  for (Pending& p : queue_) {
    if (p.ticket == ticket) return &p;
  }
  for (Pending& p : point_to_point_) {
    if (p.ticket == ticket) return &p;
  }
  return nullptr;
}

bool P2pCommunicator::is_done(std::uint64_t ticket) {
  return find(ticket) == nullptr && std::ranges::find(aborted_, ticket) == aborted_.end();
}

Result<bool> P2pCommunicator::test(std::uint64_t ticket) {
  while (advance_all()) {
  }
  const Pending* pending = find(ticket);
  if (pending != nullptr && now() >= pending->deadline) fail_at_deadline(*pending);
  if (is_done(ticket)) return true;
  return failed_.ok() ? Result<bool>(false) : failed_;
}

// MPI has nothing to sleep on.
Status P2pCommunicator::wait(std::uint64_t ticket) {
  for (TimePoint active = now(); !is_done(ticket) && failed_.ok();) {
    const bool moved = advance_all();
    const TimePoint time = now();
    if (moved) active = time;
    const Pending* pending = find(ticket);
    if (pending != nullptr && time >= pending->deadline) fail_at_deadline(*pending);
    if (moved || pending == nullptr) continue;
    if (time - active < kYield)
      ::sched_yield();
    else
      std::this_thread::sleep_for(kPause);
  }
  return is_done(ticket) ? Status() : failed_;
}

}  // namespace p2p

base::Result<std::unique_ptr<Communicator>> make_communicator(
    std::unique_ptr<PointToPoint> messages) {
  return p2p::P2pCommunicator::open(std::move(messages));
}

base::Status allreduce_leaves(Communicator& communicator, std::span<const Leaf> leaves,
                              std::uint32_t leaf_count, Output result, Dtype dtype,
                              base::TimePoint deadline) {
  std::vector<Partial> partials;
  for (const Leaf& leaf : leaves) partials.push_back({{leaf.number, leaf.number + 1}, leaf.data});
  return communicator.tree_reducer().reduce(partials, leaf_count, result, dtype, deadline);
}

}  // namespace regroup::collective
