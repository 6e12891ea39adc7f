// Makes tasks of operations.
//
// The local barriers of a host's members carry the signature of the operation that they belong to. So the
// first one detects a mismatch, and the local operations after it cannot differ. An operation that does
// something else first begins with a barrier of its own. An operation in which a rank could return before all
// have arrived ends with a barrier of all hosts.
#include "collective/ucx/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace regroup::collective {

using base::Result;
using base::TimePoint;

namespace {

bool may_return_early(Kind kind) {
  return kind == Kind::kBroadcast || kind == Kind::kReduce || kind == Kind::kGather || kind == Kind::kScatter;
}

// The operation begins with a local barrier.
bool begins_with_local_barrier(Kind kind) {
  return kind == Kind::kAllreduce || kind == Kind::kReduce || kind == Kind::kReduceScatter;
}

}  // namespace

UcxCommunicator::UcxCommunicator(std::shared_ptr<Engine> engine, Group group, Layout layout, Plans plans)
    : engine_(std::move(engine)),
      id_(group.communicator),
      ranks_(std::move(group.ranks)),
      rank_(group.rank),
      layout_(std::move(layout)),
      plans_(std::move(plans)),
      local_(std::move(group.local)),
      sent_(ranks_.size()),
      received_(ranks_.size()),
      completed_(ranks_.size()) {}

UcxCommunicator::~UcxCommunicator() { engine_->abandon(id_); }

Result<std::unique_ptr<Communicator>> UcxCommunicator::open(std::shared_ptr<Engine> engine, Group group) {
  std::vector<proto::NodeId> nodes;
  for (const int rank : group.ranks) {
    nodes.push_back(engine->mesh().world().members[static_cast<std::size_t>(rank)].slot_id.node);
  }
  Layout layout = Layout::of(nodes, group.rank);
  const auto leaves = static_cast<std::uint32_t>(group.ranks.size());
  std::vector<Nodes> by_host;
  Nodes here;
  for (std::size_t host = 0; host < layout.hosts.size(); ++host) {
    Nodes ranks;
    for (const int r : layout.hosts[host])
      ranks.push_back({static_cast<std::uint32_t>(r), static_cast<std::uint32_t>(r) + 1});
    if (host == layout.host) here = ranks;
    auto largest = largest_nodes(std::move(ranks), leaves);
    if (!largest.ok()) return largest.status();
    by_host.push_back(std::move(*largest));
  }
  auto local = plan_merge(std::span(&here, 1), leaves);
  auto between = plan_halving(layout.host, by_host, leaves);
  auto whole = plan_merge(by_host, leaves, true);
  if (!local.ok() || !between.ok() || !whole.ok())
    return base::internal_error("the ranks make no canonical tree");
  Plans plans{std::move(*local), std::move(*between), std::move(*whole), std::move(by_host)};
  return std::unique_ptr<Communicator>(
      new UcxCommunicator(std::move(engine), std::move(group), std::move(layout), std::move(plans)));
}

Result<Request> UcxCommunicator::start(const Operation& o, TimePoint deadline) {
  REGROUP_RETURN_IF_ERROR(o.check(rank_, size()));
  OperationDescriptor operation{.communicator = id_, .ranks = ranks_, .signature = signature_of(o, size())};
  operation.point_to_point = o.kind == Kind::kSend || o.kind == Kind::kReceive;
  if (operation.point_to_point) {
    auto& count = (o.kind == Kind::kSend ? sent_ : received_)[static_cast<std::size_t>(o.root)];
    operation.number = ++count;
    operation.peer = o.root;
    operation.begin = [this, o, number = operation.number] {
      return o.kind == Kind::kSend ? send(o, number) : receive(o, number);
    };
  } else {
    operation.number = ++number_;
    operation.begin = [this, o, number = operation.number] { return collective(o, number); };
  }
  auto ticket = engine_->start(std::move(operation), deadline);
  if (!ticket.ok()) return ticket.status();
  return Request(this, *ticket);
}

Task UcxCommunicator::collective(Operation o, std::uint64_t number) {
  signature_ = signature_of(o, size());
  if (layout_.hosts.size() == 1) {
    co_await local(o);
    co_return;
  }
  Exchange x(*engine_, scratch_, layout_, ranks_, id_, number, signature_);
  const bool empty = o.kind == Kind::kBarrier || o.block(size()) == 0;
  if (local_size() > 1 && (empty || !begins_with_local_barrier(o.kind))) co_await compare_signatures();
  if (!empty) co_await perform(x, o);
  if (empty || may_return_early(o.kind)) co_await host_barrier(x);
}

Task UcxCommunicator::perform(Exchange& x, const Operation& o) {
  switch (o.kind) {
    case Kind::kAllreduce:
    case Kind::kReduce: {
      const int to = o.kind == Kind::kReduce ? static_cast<int>(layout_.host_of(o.root)) : -1;
      return uses_leader(o.in.size()) ? reduce_via_leader(x, o, to) : reduce(x, o, to);
    }
    case Kind::kReduceScatter:
      return reduce_scatter(x, o);
    case Kind::kBroadcast:
      return broadcast(x, o);
    case Kind::kAllgather:
      return allgather(x, o);
    case Kind::kGather:
      return gather(x, o);
    case Kind::kScatter:
      return scatter(x, o);
    case Kind::kAlltoall:
      return alltoall(x, o);
    default:
      return host_barrier(x);
  }
}

int UcxCommunicator::local_rank_of(int rank) const {
  return static_cast<int>(std::ranges::find(layout_.here(), rank) - layout_.here().begin());
}

Task UcxCommunicator::local(Operation o) {
  auto request = local_->start_part(signature_, o, TimePoint::max());  // the engine keeps the deadline
  if (!request.ok()) engine_->fail(request.status());
  co_await Until(*engine_, [&] {
    const auto done = request->test();
    if (!done.ok()) fail_locally(done.status());
    return done.ok() && *done;
  });
}

void UcxCommunicator::fail_locally(const base::Status& why) {
  const auto other = local_->mismatch();
  if (!other || layout_.hosts.size() == 1) return engine_->fail(why);
  engine_->fail_mismatch(signature_, ranks_[static_cast<std::size_t>(layout_.here()[other->rank])],
                         other->signature);
}

Task UcxCommunicator::compare_signatures() { co_await local(Operation::barrier()); }

Task UcxCommunicator::host_barrier(Exchange& x) {
  if (layout_.local_rank == 0) co_await x.barrier_between_hosts();
  if (local_size() > 1) co_await local(Operation::barrier());
}

// The data is sent only after the receiver has posted its receive, so that a message that nobody receives
// occupies no memory.
Task UcxCommunicator::send(Operation o, std::uint64_t number) {
  const int peer = ranks_[static_cast<std::size_t>(o.root)];
  PeerMesh& mesh = engine_->mesh();
  const MatchKey ready{id_, MessageKind::kReadyToReceive, number, 0, peer};
  co_await Until(
      *engine_, [&] { return mesh.find(ready) != nullptr || (static_cast<void>(mesh.connect(peer)), false); },
      peer);
  const std::uint64_t capacity = mesh.find(ready)->header.signature.bytes;
  mesh.drop(ready);
  const MessageHeader header{{id_, MessageKind::kPointToPoint, number}, signature_of(o, size())};
  co_await Until(
      *engine_, [&] { return mesh.connect(peer); }, peer);
  const Transfer transfer = mesh.send(peer, header, capacity == o.in.size() ? o.in : Input());
  co_await Until(
      *engine_, [&] { return transfer.done() && !transfer.failed(); }, peer);
  const MatchKey ack{id_, MessageKind::kAck, number, 0, peer};
  co_await Until(
      *engine_, [&] { return mesh.find(ack) != nullptr; }, peer);
  mesh.drop(ack);
  if (capacity != o.in.size()) {
    engine_->fail(base::invalid_argument(
        fmt::format("send: {} bytes, rank {} wants {}", o.in.size(), o.root, capacity)));
  }
}

// At most kMaxPostedReceives receives are posted at a time; the oldest one always is.
Task UcxCommunicator::receive(Operation o, std::uint64_t number) {
  const int peer = ranks_[static_cast<std::size_t>(o.root)];
  std::uint64_t& completed = completed_[static_cast<std::size_t>(o.root)];
  PeerMesh& mesh = engine_->mesh();
  co_await Until(
      *engine_,
      [&] { return mesh.connect(peer) && number <= completed + UnexpectedQueue::kMaxPostedReceives; }, peer);
  const MessageHeader header{{id_, MessageKind::kReadyToReceive, number}, signature_of(o, size())};
  const Transfer posted = mesh.send(peer, header, {});
  const MatchKey key{id_, MessageKind::kPointToPoint, number, 0, peer};
  co_await Until(
      *engine_, [&] { return mesh.find(key) != nullptr; }, peer);
  const ActiveMessage& message = *mesh.find(key);
  // A message that does not fit the buffer comes without its data.
  const std::uint64_t sent =
      message.header.signature.bytes == o.out.size() ? message.bytes : message.header.signature.bytes;
  const bool fits = sent == o.out.size();
  Transfer transfer;
  if (fits) transfer = mesh.take(key, o.out.data());
  if (!fits) mesh.drop(key);
  co_await Until(
      *engine_, [&] { return transfer.done() && posted.done(); }, peer);
  completed += 1;
  const Transfer ack = mesh.send(peer, {{id_, MessageKind::kAck, number}, signature_of(o, size())}, {});
  co_await Until(
      *engine_, [&] { return ack.done(); }, peer);
  if (!fits) {
    engine_->fail(base::invalid_argument(
        fmt::format("receive: {} bytes, rank {} sends {}", o.out.size(), o.root, sent)));
    co_await Until(*engine_, [] { return false; });
  }
}

Result<std::unique_ptr<Communicator>> UcxCommunicator::split(int color, TimePoint deadline) {
  struct SplitEntry {
    std::int32_t color;
    std::uint32_t group;
  };
  const SplitEntry mine{color, engine_->last_group};
  std::vector<SplitEntry> entries(ranks_.size());
  REGROUP_RETURN_IF_ERROR(run(
      Operation::allgather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(entries))),
      deadline));
  for (const SplitEntry& entry : entries)
    engine_->last_group = std::max(engine_->last_group, entry.group + 1);
  auto here = local_->split_local(color, deadline);
  if (!here.ok()) return here.status();
  if (color < 0) return std::unique_ptr<Communicator>();
  Group group{.communicator = id_, .local = std::move(*here)};
  group.communicator.group = engine_->last_group;
  for (std::size_t r = 0; r < entries.size(); ++r) {
    if (entries[r].color != color) continue;
    if (static_cast<int>(r) == rank_) group.rank = static_cast<int>(group.ranks.size());
    group.ranks.push_back(ranks_[r]);
  }
  return open(engine_, std::move(group));
}

}  // namespace regroup::collective
