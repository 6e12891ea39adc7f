// The UCX calls of a mesh, except those that connect (connections.cc). The owner's thread makes all
// UCX calls except ucp_worker_signal.
//
// Death of a peer: its endpoint reports an error once (error handling mode PEER). From then on
// nothing is sent to that peer, and operations that need it wait for the revoke. Messages that had
// arrived from it stay valid.
#include "collective/ucx/peer_mesh.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/random.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "collective/ucx/reachability.h"

namespace regroup::collective::ucx {
namespace {

using base::Result;
using base::Status;
using base::TimePoint;

constexpr unsigned kMessageId = 1;        // the id of all our active messages
constexpr std::size_t kMostNotes = 4096;  // of carriers, that have arrived
constexpr unsigned kAcceptInterval = 16;  // calls of progress() for each accept_connections()
constexpr std::chrono::seconds kDrainTimeout(2);
constexpr std::chrono::milliseconds kHandshakeTimeout(100);
constexpr std::chrono::milliseconds kAckTimeout(100);  // wait for acks in close()
// The same, while TCP has unacknowledged data.
constexpr std::chrono::seconds kDeliveryTimeout(2);
constexpr std::chrono::milliseconds kPollInterval(10);    // between two checks of that TCP state
constexpr std::chrono::seconds kSilenceLimit(1);          // silence before on_peer_silent
constexpr std::chrono::milliseconds kTcpAckTimeout(500);  // a host that answers acks within this

}  // namespace

PeerMesh::PeerMesh(std::shared_ptr<const UcxContext> context, const shmem::Arena& arena,
                   proto::World world, int self, Addresses addresses)
    : context_(std::move(context)),
      arena_(arena),
      world_(std::move(world)),
      self_(static_cast<std::size_t>(self)),
      addresses_(std::move(addresses)),
      peers_(world_.members.size()),
      unexpected_(world_.members.size()) {}

Result<std::shared_ptr<PeerMesh>> PeerMesh::open(std::shared_ptr<const UcxContext> context,
                                                 const shmem::Arena& arena, proto::World world,
                                                 proto::SlotId self, Addresses addresses) {
  const int rank = world.rank_of(self);
  if (rank < 0 || self.slot >= arena.spec().slots) {
    return base::invalid_argument(
        fmt::format("open_peer_mesh: node {} slot {} is not in generation {}, or not in the arena",
                    self.node, self.slot, world.generation));
  }
  std::shared_ptr<PeerMesh> mesh(
      new PeerMesh(std::move(context), arena, std::move(world), rank, std::move(addresses)));
  REGROUP_RETURN_IF_ERROR(mesh->start());
  return mesh;
}

Status PeerMesh::failure(const char* call, ucs_status_t status) const {
  return base::unavailable(fmt::format("{}(generation {}): {}", call, world_.generation,
                                       ucp().ucs_status_string(status)));
}

Status PeerMesh::start() {
  if (::getrandom(&nonce_, sizeof nonce_, 0) != sizeof nonce_)
    return base::system_error("getrandom", "the nonce of a mesh", errno);
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_CLIENT_ID;
  params.thread_mode = UCS_THREAD_MODE_SINGLE;
  params.client_id = client_id_of(world_.generation, self_);
  ucs_status_t status = ucp().ucp_worker_create(context_->handle(), &params, &worker_);
  if (status != UCS_OK) return worker_ = nullptr, failure("ucp_worker_create", status);
  status = ucp().ucp_worker_get_efd(worker_, &descriptor_);
  if (status != UCS_OK) return failure("ucp_worker_get_efd", status);
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kMessageId;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG | UCP_AM_FLAG_PERSISTENT_DATA;
  handler.cb = on_message;
  handler.arg = this;
  status = ucp().ucp_worker_set_am_recv_handler(worker_, &handler);
  if (status != UCS_OK) return failure("ucp_worker_set_am_recv_handler", status);
  forwarder_ =
      std::make_unique<DoorbellForwarder>(own().bell, [this] { ucp().ucp_worker_signal(worker_); });
  return addresses_.publish(encode(nonce_, listener().addresses()));
}

PeerMesh::~PeerMesh() { close(); }

// A peer without our partial sums is still in its operation. If we closed a connection with unread
// data, TCP would discard (RST) the bytes that it has not delivered; and UCX on the other side
// reads only once more after it learns of the close. So wait until the peers have acked, or their
// kernels have all bytes. In a revoked generation no operation needs them.
void PeerMesh::flush_acks() {
  if (closed() || is_over()) return;
  for (const MeshPeer& peer : peers_) {
    if (peer.pending_acks != 0)
      static_cast<void>(send(static_cast<int>(&peer - peers_.data()),
                             {{{}, MessageKind::kHandshake, nonce_}, {}}, {}));
  }
  const auto lacks_ack = [this](const MeshPeer& peer) {
    return (peer.unacked != 0 || is_held(peer)) && peer.lost.empty();
  };
  const auto lacks_bytes = [&](const MeshPeer& peer) {
    if (!lacks_ack(peer)) return false;
    if (is_held(peer)) return true;
    const auto rank = static_cast<std::size_t>(&peer - peers_.data());
    const auto address = addresses_.find(world_.members[rank].id);
    std::vector<PeerAddress> addresses = decode(address.value_or(std::vector<std::byte>()));
    // UCX connects members of one host by loopback.
    addresses.push_back({AF_INET, 0, 8, {127, 0, 0, 1}});
    return has_unsent(addresses);
  };
  const TimePoint begin = base::SystemClock().now();
  for (TimePoint next_poll = begin + kAckTimeout;
       !is_over() && std::ranges::any_of(peers_, lacks_ack);) {
    if (const TimePoint now = base::SystemClock().now(); now >= next_poll) {
      if (now >= begin + kDeliveryTimeout || std::ranges::none_of(peers_, lacks_bytes)) break;
      next_poll = now + kPollInterval;
    }
    if (!progress()) ::sched_yield();
  }
}

void PeerMesh::report_lost(int rank) {
  MeshPeer& peer = peers_[static_cast<std::size_t>(rank)];
  if (peer.lost.empty() || std::exchange(peer.reported, true) || !addresses_.on_peer_lost) return;
  addresses_.on_peer_lost(world_.members[static_cast<std::size_t>(rank)].id, peer.lost);
}

void PeerMesh::report_silent(int rank, TimePoint since) {
  MeshPeer& peer = peers_[static_cast<std::size_t>(rank)];
  const auto silence = base::SystemClock().now() - std::max(since, peer.last_received);
  if (!addresses_.on_peer_silent || silence < kSilenceLimit ||
      peer.silence == MeshPeer::kUnreachable || !peer.lost.empty())
    return;
  const proto::MemberId id = world_.members[static_cast<std::size_t>(rank)].id;
  const auto address = addresses_.find(id);
  const bool answers = !address || host_answers(decode(*address), kTcpAckTimeout);
  if (answers && peer.silence == MeshPeer::kSilent) return;
  peer.silence = answers ? MeshPeer::kSilent : MeshPeer::kUnreachable;
  const char* const more = !address  ? "; it has published no address"
                           : answers ? "; its host answers"
                                     : "; its host acknowledges nothing";
  addresses_.on_peer_silent(
      id, answers,
      fmt::format("rank {} has been silent for {:.1f} s in generation {}{}", rank,
                  std::chrono::duration<double>(silence).count(), world_.generation, more));
}

void PeerMesh::publish_failure(const std::string& why) {
  static_cast<void>(addresses_.publish(encode(nonce_, listener().addresses(), why)));
}

std::string PeerMesh::published_failure(int rank) const {
  const MeshPeer& peer = peers_[static_cast<std::size_t>(rank)];
  if (peer.endpoint != nullptr && peer.lost.empty() && peer.last_received != TimePoint()) return {};
  const auto address = addresses_.find(world_.members[static_cast<std::size_t>(rank)].id);
  return address ? failure_reason_in(*address) : std::string();
}

namespace {

ucp_request_param_t with_user_data(void* state) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.user_data = state;
  return param;
}

}  // namespace

// UCX may call back until the request has finished; until then the state keeps itself alive.
Transfer PeerMesh::begin() {
  Transfer transfer;
  transfer.state_ = std::make_shared<Transfer::State>();
  transfer.state_->mesh = this;
  transfer.state_->self = transfer.state_;
  requests_ += 1;
  return transfer;
}

void PeerMesh::end(Transfer::State& state) {
  if (std::exchange(state.done, true)) return;
  state.mesh->requests_ -= 1;
  const auto last = std::move(state.self);
}

// Handles a request that UCX completed at once, or refused (then on_error() marks the peer as
// lost).
Transfer PeerMesh::begun(Transfer transfer, ucs_status_ptr_t request) {
  if (UCS_PTR_IS_ERR(request)) transfer.state_->failed = true;
  if (!UCS_PTR_IS_PTR(request)) end(*transfer.state_);
  return transfer;
}

void PeerMesh::on_sent(void* request, ucs_status_t status, void* state) {
  auto& transfer = *static_cast<Transfer::State*>(state);
  transfer.failed = status != UCS_OK;  // this callback may run within ucp_am_send_nbx()
  transfer.mesh->ucp().ucp_request_free(request);
  end(transfer);
}

void PeerMesh::on_fetched(void* request, ucs_status_t status, std::size_t, void* state) {
  on_sent(request, status, state);
}

Transfer PeerMesh::send(int to, const MessageHeader& header, Input data) {
  MeshPeer& peer = peers_[static_cast<std::size_t>(to)];
  if (!peer.lost.empty() || closed()) return {};
  if (peer.endpoint == nullptr) {
    if (carrier_ != nullptr && header.key.kind == MessageKind::kAck) defer(to, header);
    return {};
  }
  if (header.key.kind == MessageKind::kReadyToReceive) unexpected_.post_receive(to);
  peer.used = true;
  if (is_carried(to, header, data)) return carry(to, header, data);
  return send_by(peer.endpoint, peer, header, data, 0);
}

// Adds what the mesh says in each header to that peer.
void PeerMesh::complete(MessageHeader& header, MeshPeer& to) {
  header.key.from = rank();
  header.acks += std::exchange(to.pending_acks, 0);
  header.nonce = to.nonce;
}

Transfer PeerMesh::send_by(ucp_ep_h endpoint, MeshPeer& to, const MessageHeader& header, Input data,
                           unsigned flags, std::shared_ptr<const std::vector<std::byte>> owned) {
  Transfer transfer = begin();
  transfer.state_->owned = std::move(owned);
  transfer.state_->header = header;
  complete(transfer.state_->header, to);
  ucp_request_param_t param = with_user_data(transfer.state_.get());
  param.cb.send = on_sent;
  param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = flags;
  return begun(transfer,
               ucp().ucp_am_send_nbx(endpoint, kMessageId, &transfer.state_->header,
                                     sizeof(MessageHeader), data.data(), data.size(), &param));
}

ucs_status_t PeerMesh::on_message(void* self, const void* header, std::size_t header_bytes,
                                  void* data, std::size_t bytes, const ucp_am_recv_param_t* param) {
  PeerMesh& mesh = *static_cast<PeerMesh*>(self);
  const auto read = parse_header({static_cast<const std::byte*>(header), header_bytes}, bytes,
                                 mesh.world_.members.size(), mesh.nonce_);
  if (!read) return mesh.rejected_ += 1, UCS_OK;
  ActiveMessage message{.header = *read};
  const MatchKey& key = message.header.key;
  MeshPeer& peer = mesh.peers_[static_cast<std::size_t>(key.from)];
  mesh.on_header(message.header);
  if (key.kind == MessageKind::kHandshake) {
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0)
      mesh.on_handshake(key.from, param->reply_ep, key.number);
    return UCS_OK;
  }
  peer.used = true;
  const bool is_probe = key.kind == MessageKind::kProbe;
  if (is_probe && mesh.find(key) != nullptr) return UCS_OK;  // a repeated probe adds nothing
  message.bytes = bytes;
  message.fetch = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  if (bytes != 0 && !is_probe) message.data = data;
  if (key.kind == MessageKind::kNote) {
    if (message.data == nullptr || mesh.carrier_ == nullptr || mesh.notes_.size() >= kMostNotes)
      return mesh.rejected_ += 1, UCS_OK;
    return mesh.notes_.push_back(message), UCS_INPROGRESS;
  }
  Status status = mesh.unexpected_.put(message);
  if (status.ok()) return message.data == nullptr ? UCS_OK : UCS_INPROGRESS;
  mesh.rejected_ += 1;
  if (mesh.overrun_.ok()) mesh.overrun_ = std::move(status);
  return UCS_OK;
}

Transfer PeerMesh::take(const MatchKey& key, std::byte* to) {
  ActiveMessage message = unexpected_.remove(key);
  return copy(message, to);
}

// Moves the data of the message to `to`, and releases the message.
Transfer PeerMesh::copy(ActiveMessage& message, std::byte* to) {
  Transfer transfer;
  if (message.fetch) {
    transfer = begin();
    transfer.state_->fetches = true;
    ucp_request_param_t param = with_user_data(transfer.state_.get());
    param.cb.recv_am = on_fetched;
    transfer =
        begun(transfer, ucp().ucp_am_recv_data_nbx(worker_, std::exchange(message.data, nullptr),
                                                   to, message.bytes, &param));
  } else if (message.bytes != 0) {
    std::memcpy(to, message.data, message.bytes);
  }
  release(message);
  return transfer;
}

void PeerMesh::release(const ActiveMessage& message) {
  if (message.owned != nullptr)
    delete[] message.owned;
  else if (message.data != nullptr)
    ucp().ucp_am_data_release(worker_, message.data);
}

// Rejected messages do not count as progress: a peer that sends them without end must not delay our
// deadline.
bool PeerMesh::progress() {
  const std::uint64_t refused = rejected_;
  bool moved = false;
  while (!closed() && rejected_ == refused && ucp().ucp_worker_progress(worker_) != 0) moved = true;
  if (carrier_ != nullptr && progress_carrier()) moved = true;
  // A poll of the listener costs as much as one of the worker.
  const bool polls_listener = progress_calls_++ % kAcceptInterval == 0;
  return (polls_listener && accept_connections()) || (moved && rejected_ == refused);
}

// ucp_worker_arm() discards signals that came before it, so the doorbell is checked after it.
void PeerMesh::sleep(std::uint32_t seen, TimePoint until) {
  if (closed()) return;
  const DoorbellForwarder::SleepScope nap(*forwarder_);
  if (ucp().ucp_worker_arm(worker_) != UCS_OK || !listener().arm() || nap.has_rung(seen)) return;
  const auto left = until - base::SystemClock().now();
  if (left <= base::Duration::zero()) return;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
  const timespec time{seconds.count(), (left - seconds).count()};
  pollfd entries[] = {{descriptor_, POLLIN, 0},
                      {listener().descriptor(), POLLIN, 0},
                      carrier_ == nullptr ? pollfd{-1, 0, 0} : carrier_->awaited()};
  ::ppoll(entries, std::size(entries), &time, nullptr);
}

// Closing an endpoint that is still connecting can abort the process of the peer (tcp_ep.c:
// CTX_TYPE_TX).
void PeerMesh::await_handshakes() {
  const TimePoint begin = base::SystemClock().now();
  const auto is_recent = [&](const ConnectionAttempt& attempt) {
    return !attempt.failed && attempt.since > begin - kHandshakeTimeout;
  };
  const auto awaits_handshake = [&](const MeshPeer& peer) {
    if (std::ranges::any_of(peer.attempts, is_recent)) return true;
    const bool begun = peer.endpoint != nullptr || is_connecting(peer);
    return begun && peer.lost.empty() && peer.last_received == TimePoint();
  };
  for (const TimePoint end = base::SystemClock().now() + kHandshakeTimeout;
       base::SystemClock().now() < end &&
       (std::ranges::any_of(peers_, awaits_handshake) ||
        std::ranges::any_of(pending_peers_, awaits_handshake));) {
    if (!progress()) ::sched_yield();
  }
}

void PeerMesh::close() {
  flush_acks();
  send_deferred();
  close_carrier();
  if (closed()) return;
  await_handshakes();
  closing_ = true;
  const auto drop_all = [this] {
    while (const auto message = unexpected_.remove_any()) release(*message);
  };
  drop_all();
  for (MeshPeer& peer : peers_) {
    if (peer.endpoint != nullptr) close_endpoint(std::exchange(peer.endpoint, nullptr));
    for (const ConnectionAttempt& attempt : std::exchange(peer.attempts, {}))
      close_endpoint(attempt.endpoint);
  }
  for (const MeshPeer& pending : std::exchange(pending_peers_, {}))
    close_endpoint(pending.endpoint);
  for (const TimePoint end = base::SystemClock().now() + kDrainTimeout;
       base::SystemClock().now() < end;) {
    if (!progress() && requests_ == 0) break;
  }
  drop_all();
  forwarder_.reset();  // before the worker, which it signals
  ucp().ucp_worker_destroy(std::exchange(worker_, nullptr));
}

}  // namespace regroup::collective::ucx
