// The messages of a mesh that its carrier takes: the data of collective operations. Whether a
// message goes by the carrier or by UCX is the sender's choice for each message, since receivers
// match messages by their keys.
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>
#include <utility>

#include "base/clock.h"
#include "collective/ucx/peer_mesh.h"

namespace regroup::collective::ucx {
namespace {

constexpr std::chrono::seconds kDeferredTimeout(2);

}  // namespace

bool PeerMesh::is_carried(int to, const MessageHeader& header, Input data) const {
  return carrier_ != nullptr && header.key.kind == MessageKind::kData && !data.empty() &&
         carrier_->carries(to, sizeof header + data.size());
}

// A message has come from that peer, in whatever way.
void PeerMesh::on_header(const MessageHeader& header) {
  MeshPeer& peer = peers_[static_cast<std::size_t>(header.key.from)];
  peer.last_received = base::SystemClock().now();
  peer.silence = MeshPeer::kNone;
  peer.unacked -= std::min(peer.unacked, header.acks);
}

Transfer PeerMesh::send_owned(int to, const MessageHeader& header, std::vector<std::byte> data) {
  MeshPeer& peer = peers_[static_cast<std::size_t>(to)];
  if (peer.endpoint == nullptr || !peer.lost.empty() || closed()) return {};
  auto kept = std::make_shared<std::vector<std::byte>>(std::move(data));
  peer.used = true;
  return send_by(peer.endpoint, peer, header, *kept, 0, kept);
}

// The carrier delivers what has passed, even while this member computes.
Transfer PeerMesh::carry(int to, const MessageHeader& header, Input data) {
  MessageHeader whole = header;
  complete(whole, peers_[static_cast<std::size_t>(to)]);
  const std::uint64_t number = carrier_->send(to, std::as_bytes(std::span(&whole, 1)), data);
  if (number <= carrier_->passed()) return {};
  Transfer transfer = begin();
  carried_.emplace_back(number, transfer);
  return transfer;
}

bool PeerMesh::end_carried(std::uint64_t passed) {
  bool moved = false;
  for (; !carried_.empty() && carried_.front().first <= passed; carried_.pop_front()) {
    end(*carried_.front().second.state_);
    moved = true;
  }
  return moved;
}

bool PeerMesh::is_held(const MeshPeer& peer) const {
  return carrier_ != nullptr && carrier_->holds(static_cast<int>(&peer - peers_.data()));
}

bool PeerMesh::progress_carrier() {
  bool moved = carrier_->progress();
  while (auto carried = carrier_->receive()) {
    on_carried(std::move(*carried));
    moved = true;
  }
  take_notes();
  send_parcels();
  return end_carried(carrier_->passed()) || moved;
}

void PeerMesh::on_carried(Carrier::Message carried) {
  const std::size_t bytes = carried.size - std::min(carried.size, sizeof(MessageHeader));
  const auto header = parse_header({carried.bytes.get(), carried.size - bytes}, bytes,
                                   world_.members.size(), nonce_);
  if (!header || header->key.kind != MessageKind::kData || header->key.from != carried.from) {
    rejected_ += 1;
    return;
  }
  on_header(*header);
  ActiveMessage message{.header = *header, .bytes = bytes};
  message.data = carried.bytes.get() + sizeof(MessageHeader);
  message.owned = carried.bytes.get();
  base::Status status = unexpected_.put(message);
  if (status.ok()) return static_cast<void>(carried.bytes.release());
  rejected_ += 1;
  if (overrun_.ok()) overrun_ = std::move(status);
}

void PeerMesh::take_notes() {
  for (ActiveMessage& message : std::exchange(notes_, {})) {
    IncomingNote& note = incoming_notes_.emplace_back();
    note.from = message.header.key.from;
    note.bytes.resize(message.bytes);
    note.transfer = copy(message, note.bytes.data());
  }
  for (; !incoming_notes_.empty() && incoming_notes_.front().transfer.done();
       incoming_notes_.pop_front())
    carrier_->on_note(incoming_notes_.front().from, incoming_notes_.front().bytes);
}

// A message that the carrier has brought may be answered before there is a connection to its
// sender.
void PeerMesh::defer(int to, const MessageHeader& header) {
  const auto bytes = std::as_bytes(std::span(&header, 1));
  deferred_.push_back({to, {bytes.begin(), bytes.end()}});
}

// Before the end of the mesh, which the other members do not await.
void PeerMesh::send_deferred() {
  const base::TimePoint end = base::SystemClock().now() + kDeferredTimeout;
  while (!deferred_.empty() && !closed() && !is_over() && base::SystemClock().now() < end) {
    if (!progress()) ::sched_yield();
  }
}

// Sends notes, and messages that wait for a connection or that the carrier has lost, to members to
// which there is a connection by now.
void PeerMesh::send_parcels() {
  while (auto note = carrier_->note()) outgoing_notes_.push_back(std::move(*note));
  while (auto message = carrier_->returned()) deferred_.push_back(std::move(*message));
  std::erase_if(outgoing_notes_, [this](Carrier::Parcel& note) {
    if (!connect(note.to)) return false;
    static_cast<void>(send_owned(note.to, {{{}, MessageKind::kNote}, {}}, std::move(note.bytes)));
    return true;
  });
  std::erase_if(deferred_, [this](Carrier::Parcel& message) {
    if (!connect(message.to)) return false;
    MessageHeader header;
    std::memcpy(&header, message.bytes.data(), sizeof header);
    message.bytes.erase(message.bytes.begin(), message.bytes.begin() + sizeof header);
    static_cast<void>(send_owned(message.to, header, std::move(message.bytes)));
    return true;
  });
}

void PeerMesh::close_carrier() {
  if (carrier_ != nullptr) carrier_->close(is_over());
  carrier_.reset();
  end_carried(UINT64_MAX);
  for (const ActiveMessage& note : std::exchange(notes_, {})) release(note);
}

}  // namespace regroup::collective::ucx
