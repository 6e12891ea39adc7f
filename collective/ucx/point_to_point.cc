// The two sides of a message, as tasks.
#include "collective/ucx/point_to_point.h"

#include <fmt/format.h>

#include "base/status.h"

namespace regroup::collective::ucx {

OperationDescriptor PointToPoint::next(const Operation& o) {
  OperationDescriptor operation{.communicator = id_,
                                .ranks = ranks_,
                                .signature = signature_of_message(o),
                                .point_to_point = true};
  operation.peer = o.root;
  const bool sends = o.kind == Kind::kSend;
  operation.number = ++(sends ? sent_ : received_)[static_cast<std::size_t>(o.root)];
  operation.begin = [this, o, sends, number = operation.number] {
    return sends ? send(o, number) : receive(o, number);
  };
  return operation;
}

// Sends the data only after the receiver has posted its receive, so that a message that is never
// received occupies no memory at the receiver.
net::Task PointToPoint::send(Operation o, std::uint64_t number) {
  const int peer = ranks_[static_cast<std::size_t>(o.root)];
  PeerMesh& mesh = engine_.mesh();
  const MatchKey ready{id_, MessageKind::kReadyToReceive, number, 0, peer};
  co_await Until(
      engine_,
      [&] { return mesh.find(ready) != nullptr || (static_cast<void>(mesh.connect(peer)), false); },
      peer);
  const std::uint64_t capacity = mesh.find(ready)->header.signature.bytes;
  mesh.drop(ready);
  const MessageHeader header{{id_, MessageKind::kPointToPoint, number}, signature_of_message(o)};
  co_await Until(
      engine_, [&] { return mesh.connect(peer); }, peer);
  const Transfer transfer = mesh.send(peer, header, capacity == o.in.size() ? o.in : Input());
  co_await Until(
      engine_, [&] { return transfer.done() && !transfer.failed(); }, peer);
  const MatchKey ack{id_, MessageKind::kAck, number, 0, peer};
  co_await Until(
      engine_, [&] { return mesh.find(ack) != nullptr; }, peer);
  mesh.drop(ack);
  if (capacity != o.in.size()) {
    engine_.fail(base::invalid_argument(
        fmt::format("send: {} bytes, rank {} wants {}", o.in.size(), o.root, capacity)));
  }
}

// Posts at most kMaxPostedReceives receives at a time, oldest first.
net::Task PointToPoint::receive(Operation o, std::uint64_t number) {
  const int peer = ranks_[static_cast<std::size_t>(o.root)];
  std::uint64_t& completed = completed_[static_cast<std::size_t>(o.root)];
  PeerMesh& mesh = engine_.mesh();
  co_await Until(
      engine_,
      [&] {
        return mesh.connect(peer) && number <= completed + UnexpectedQueue::kMaxPostedReceives;
      },
      peer);
  const MessageHeader header{{id_, MessageKind::kReadyToReceive, number}, signature_of_message(o)};
  const Transfer posted = mesh.send(peer, header, {});
  const MatchKey key{id_, MessageKind::kPointToPoint, number, 0, peer};
  co_await Until(
      engine_, [&] { return mesh.find(key) != nullptr; }, peer);
  const ActiveMessage& message = *mesh.find(key);
  // The sender sends a message that does not fit our buffer without its data.
  const std::uint64_t sent = message.header.signature.bytes == o.out.size()
                                 ? message.bytes
                                 : message.header.signature.bytes;
  const bool fits = sent == o.out.size();
  Transfer transfer;
  if (fits) transfer = mesh.take(key, o.out.data());
  if (!fits) mesh.drop(key);
  co_await Until(
      engine_, [&] { return transfer.done() && posted.done(); }, peer);
  completed += 1;
  const Transfer ack =
      mesh.send(peer, {{id_, MessageKind::kAck, number}, signature_of_message(o)}, {});
  co_await Until(
      engine_, [&] { return ack.done(); }, peer);
  if (!fits) {
    engine_.fail(base::invalid_argument(
        fmt::format("receive: {} bytes, rank {} sends {}", o.out.size(), o.root, sent)));
    co_await Until(engine_, [] { return false; });
  }
}

}  // namespace regroup::collective::ucx
