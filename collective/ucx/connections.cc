// How the members of a mesh connect, and how connections break.
//
// Of two members, the one with the lower rank connects. It tries the other's addresses in turn,
// because the first may belong to a filtered network, or to an unrelated network with the same
// numbers.
//
// Any process can connect and claim any rank. So the accepting member treats a connection as a
// pending peer until a handshake with its own nonce arrives on it (UCX passes the endpoint with
// that message, UCP_AM_SEND_FLAG_REPLY). It then makes it the connection of that rank, and replies
// with a handshake that has the nonce of the first one. The reply tells the connecting member which
// of its attempts was accepted. Before the reply the connecting member sends no other message, so
// none is lost on its other attempts.
#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "collective/ucx/peer_mesh.h"
#include "collective/ucx/reachability.h"

namespace regroup::collective::ucx {
namespace {

using base::TimePoint;

constexpr std::size_t kMaxPendingPeers = 64;  // in addition to one for each member
// How long to wait for an address before trying the next one as well.
constexpr base::Duration kAttemptTimeout = std::chrono::milliseconds(250);
constexpr base::Duration kRoundTimeout = std::chrono::seconds(1);  // wait after the last address
// For an attempt that the peer's kernel has accepted, since the peer may be computing.
constexpr base::Duration kAcceptedAttemptTimeout = std::chrono::seconds(2);

}  // namespace

ucp_ep_params_t PeerMesh::endpoint_params() {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                      UCP_EP_PARAM_FIELD_FLAGS;
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {on_error, this};
  return params;
}

bool PeerMesh::connect(int to) {
  MeshPeer& peer = peers_[static_cast<std::size_t>(to)];
  if (peer.endpoint != nullptr || !peer.lost.empty() || closed()) return true;
  if (to < rank()) return false;  // `to` connects to us
  if (!peer.resolved) {
    const auto address = addresses_.find(world_.members[static_cast<std::size_t>(to)].id);
    if (!address) return false;
    peer.resolved = true;
    peer.nonce = nonce_in(*address);
    peer.addresses = nearest_first(decode(*address), listener().addresses());
  }
  advance_connect(peer);
  return peer.endpoint != nullptr || !peer.lost.empty();
}

std::size_t PeerMesh::connections() const {
  std::size_t known = 0;
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank)
    known += was_connected(rank) ? 1 : 0;
  return known;
}

// True unless the connection to `peer` works. A connection that broke before it carried a message
// does not count: the other member may not have learned that it was accepted, and tries again.
bool PeerMesh::accepts_connection(const MeshPeer& peer) {
  return peer.endpoint == nullptr || (!peer.lost.empty() && !peer.used);
}

bool PeerMesh::is_connecting(const MeshPeer& peer) {
  return !std::ranges::all_of(peer.attempts, &ConnectionAttempt::failed);
}

void PeerMesh::advance_connect(MeshPeer& peer) {
  const TimePoint now = base::SystemClock().now();
  // Every address has been tried: wait.
  const bool is_round_over = peer.next_address == 0 && !peer.attempts.empty();
  if (now < peer.next_attempt && (is_round_over || is_connecting(peer))) return;
  if (!peer.attempts.empty() && !peer.attempts.back().failed &&
      now < peer.attempts.back().since + kAcceptedAttemptTimeout &&
      is_connected(peer.attempts.back().address)) {
    peer.next_attempt = now + kAttemptTimeout;
    return;
  }
  connect_next_address(peer);
}

// Connects to the next address that accepts a connect() and has no attempt under way. After the
// last address, waits kRoundTimeout for all attempts, then repeats the failed ones, since a network
// may have come up.
void PeerMesh::connect_next_address(MeshPeer& peer) {
  if (peer.addresses.empty()) return mark_lost(peer, UCS_ERR_UNREACHABLE);
  if (peer.next_address == 0) {
    for (const ConnectionAttempt& attempt : peer.attempts) {
      if (attempt.failed) close_endpoint(attempt.endpoint);
    }
    std::erase_if(peer.attempts, [](const ConnectionAttempt& attempt) { return attempt.failed; });
  }
  ucs_status_t status = UCS_ERR_UNREACHABLE;
  ConnectionAttempt attempt;
  while (status != UCS_OK && peer.next_address < peer.addresses.size()) {
    attempt.address = peer.addresses[peer.next_address++];
    if (std::ranges::find(peer.attempts, attempt.address, &ConnectionAttempt::address) !=
        peer.attempts.end())
      continue;
    const SocketAddress address = to_socket_address(attempt.address);
    ucp_ep_params_t params = endpoint_params();
    params.field_mask |= UCP_EP_PARAM_FIELD_SOCK_ADDR;
    params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER | UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID;
    params.sockaddr = {reinterpret_cast<const sockaddr*>(&address.storage), address.bytes};
    status = ucp().ucp_ep_create(worker_, &params, &attempt.endpoint);
    if (status != UCS_OK) peer.connect_error = ucp().ucs_status_string(status);
  }
  attempt.since = base::SystemClock().now();
  const bool last = peer.next_address >= peer.addresses.size();
  peer.next_attempt = attempt.since + (last ? kRoundTimeout : kAttemptTimeout);
  if (last) peer.next_address = 0;
  if (status != UCS_OK) return;
  peer.attempts.push_back(attempt);
  send_handshake(peer, attempt.endpoint);
}

// Sends the peer our rank, our nonce and, by UCP_AM_SEND_FLAG_REPLY, the endpoint to reply on.
void PeerMesh::send_handshake(MeshPeer& peer, ucp_ep_h by) {
  static_cast<void>(
      send_by(by, peer, {{{}, MessageKind::kHandshake, nonce_}, {}}, {}, UCP_AM_SEND_FLAG_REPLY));
}

// Turns connection requests into endpoints. Accepts and closes requests of earlier generations and
// late ones, because ucp_listener_reject() crashes (openucx/ucx#11235). Above the limit, closes
// pending peers: first those whose rank already has a connection, then the oldest.
bool PeerMesh::accept_connections() {
  if (closed() || closing_ || !listener().progress()) return false;
  const auto requests = listener().take(world_.generation);
  for (const Listener::ConnectionRequest& request : requests) {
    const auto from = request.client_id & 0xffffffff;
    const bool wanted = request.client_id == client_id_of(world_.generation, from) &&
                        from < self_ && accepts_connection(peers_[from]);
    ucp_ep_params_t params = endpoint_params();
    params.field_mask |= UCP_EP_PARAM_FIELD_CONN_REQUEST;
    params.conn_request = request.handle;
    ucp_ep_h endpoint = nullptr;
    if (ucp().ucp_ep_create(worker_, &params, &endpoint) != UCS_OK)
      continue;  // UCX reports the failure to the other side
    if (wanted) {
      pending_peers_.push_back({.endpoint = endpoint});
    } else {
      close_endpoint(endpoint);
    }
  }
  while (pending_peers_.size() > peers_.size() + kMaxPendingPeers) {
    const auto is_superfluous = [](const MeshPeer& pending) {
      return pending.last_received != TimePoint();
    };
    auto first = std::ranges::find_if(pending_peers_, is_superfluous);
    if (first == pending_peers_.end()) first = pending_peers_.begin();
    close_endpoint(first->endpoint);
    pending_peers_.erase(first);
  }
  return !requests.empty();
}

// A handshake with our nonce has arrived from `rank` on this endpoint: it is a new connection, or
// the reply to our handshake.
void PeerMesh::on_handshake(int rank, ucp_ep_h endpoint, std::uint64_t nonce) {
  MeshPeer& peer = peers_[static_cast<std::size_t>(rank)];
  if (closing_) return;
  if (rank > this->rank()) {
    const auto attempt = std::ranges::find(peer.attempts, endpoint, &ConnectionAttempt::endpoint);
    if (attempt == peer.attempts.end() || attempt->failed || peer.endpoint != nullptr) return;
    peer.endpoint = endpoint;
    peer.attempts.erase(attempt);
    peer.connect_error.clear();
    return;
  }
  const auto pending = std::ranges::find(pending_peers_, endpoint, &MeshPeer::endpoint);
  if (pending == pending_peers_.end()) return;
  pending->last_received = peer.last_received;
  if (!accepts_connection(peer)) return;
  const ucp_ep_h broken = std::exchange(peer.endpoint, endpoint);
  pending_peers_.erase(pending);
  if (broken != nullptr)
    pending_peers_.push_back({.endpoint = broken, .lost = peer.lost});  // close() closes it
  peer.lost.clear();
  peer.reported = false;
  peer.nonce = nonce;
  send_handshake(peer, endpoint);
}

void PeerMesh::mark_lost(MeshPeer& peer, ucs_status_t status) {
  if (peer.lost.empty()) peer.lost = ucp().ucs_status_string(status);
}

void PeerMesh::on_error(void* self, ucp_ep_h endpoint, ucs_status_t status) {
  PeerMesh& mesh = *static_cast<PeerMesh*>(self);
  for (std::vector<MeshPeer>* const list : {&mesh.peers_, &mesh.pending_peers_}) {
    const auto at = std::ranges::find(*list, endpoint, &MeshPeer::endpoint);
    if (at != list->end()) return mesh.mark_lost(*at, status);
  }
  for (MeshPeer& peer : mesh.peers_) {
    const auto attempt = std::ranges::find(peer.attempts, endpoint, &ConnectionAttempt::endpoint);
    if (attempt == peer.attempts.end()) continue;
    attempt->failed = true;
    peer.connect_error = mesh.ucp().ucs_status_string(status);
  }
}

void PeerMesh::close_endpoint(ucp_ep_h endpoint) {
  const Transfer transfer = begin();
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  param.user_data = transfer.state_.get();
  param.cb.send = on_sent;
  static_cast<void>(begun(transfer, ucp().ucp_ep_close_nbx(endpoint, &param)));
}

}  // namespace regroup::collective::ucx
