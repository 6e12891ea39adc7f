// How members come to be connected, and their connections break.
//
// Of two members the one with the lower rank calls: one address of the other after the next, since the first
// may belong to a network that is filtered, or that only has the same numbers. Anybody can call, in the name
// of any rank, so who has called is a guest until its hello bears our nonce; UCX tells by which connection
// that came. Then its connection is that rank's, and is answered with the nonce that the hello brings. By the
// answer the caller knows which of its calls was taken; no letter leaves before.
#include <algorithm>
#include <utility>

#include "collective/ucx/reachability.h"
#include "collective/ucx/wire.h"

namespace regroup::collective {
namespace {

using core::TimePoint;

constexpr std::size_t kGuests = 64;                                   // at a time, beside one for each member
constexpr core::Duration kNextCall = std::chrono::milliseconds(250);  // nothing has come back
constexpr core::Duration kNextRound = std::chrono::seconds(1);        // behind the last address
constexpr core::Duration kNextCallHeld = std::chrono::seconds(2);  // its system has taken it, it may compute

}  // namespace

ucp_ep_params_t Wire::endpoint_params() {
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_FLAGS;
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {on_error, this};
  return params;
}

bool Wire::reach(int to) {
  WirePeer& peer = peers_[static_cast<std::size_t>(to)];
  if (peer.endpoint != nullptr || !peer.lost.empty() || closed()) return true;
  if (to < rank()) return false;  // it calls us
  if (!peer.asked) {
    const auto address = addresses_.find(world_.members[static_cast<std::size_t>(to)].id);
    if (!address) return false;
    peer.asked = true;
    peer.nonce = nonce_in(*address);
    peer.contacts = nearest_first(decode(*address), reception().contacts());
  }
  call_on(peer);
  return peer.endpoint != nullptr || !peer.lost.empty();
}

std::size_t Wire::connections() const {
  std::size_t known = 0;
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) known += knows(rank) ? 1 : 0;
  return known;
}

// It is not connected, or by what broke before anything went by it: the caller may not know that it was
// taken.
bool Wire::is_open_to(const WirePeer& peer) {
  return peer.endpoint == nullptr || (!peer.lost.empty() && !peer.used);
}

bool Wire::waits_for_answer(const WirePeer& peer) {
  return !std::ranges::all_of(peer.calls, &PeerCall::failed);
}

void Wire::call_on(WirePeer& peer) {
  const TimePoint now = core::SystemClock().now();
  const bool round = peer.next == 0 && !peer.calls.empty();  // all were called: they have time
  if (now < peer.next_call && (round || waits_for_answer(peer))) return;
  if (!peer.calls.empty() && !peer.calls.back().failed && now < peer.calls.back().since + kNextCallHeld &&
      is_connected(peer.calls.back().contact)) {
    peer.next_call = now + kNextCall;
    return;
  }
  call_next(peer);
}

// The next address that can be called, and at which no call is under way. Behind the last one all of them
// have time, then those that failed are called again: a network may come up.
void Wire::call_next(WirePeer& peer) {
  if (peer.contacts.empty()) return lose(peer, UCS_ERR_UNREACHABLE);
  if (peer.next == 0) {
    for (const PeerCall& call : peer.calls) {
      if (call.failed) close_endpoint(call.endpoint);
    }
    std::erase_if(peer.calls, [](const PeerCall& call) { return call.failed; });
  }
  ucs_status_t status = UCS_ERR_UNREACHABLE;
  PeerCall call;
  while (status != UCS_OK && peer.next < peer.contacts.size()) {
    call.contact = peer.contacts[peer.next++];
    if (std::ranges::find(peer.calls, call.contact, &PeerCall::contact) != peer.calls.end()) continue;
    const SocketAddress address = to_socket_address(call.contact);
    ucp_ep_params_t params = endpoint_params();
    params.field_mask |= UCP_EP_PARAM_FIELD_SOCK_ADDR;
    params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER | UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID;
    params.sockaddr = {reinterpret_cast<const sockaddr*>(&address.storage), address.bytes};
    status = ucp().ucp_ep_create(worker_, &params, &call.endpoint);
    if (status != UCS_OK) peer.refused = ucp().ucs_status_string(status);
  }
  call.since = core::SystemClock().now();
  const bool last = peer.next >= peer.contacts.size();
  peer.next_call = call.since + (last ? kNextRound : kNextCall);
  if (last) peer.next = 0;
  if (status != UCS_OK) return;
  peer.calls.push_back(call);
  greet(peer, call.endpoint);
}

// Says who we are by this connection, and which it is.
void Wire::greet(WirePeer& peer, ucp_ep_h by) {
  static_cast<void>(send_by(by, peer, {{{}, LetterKind::kHello, nonce_}, {}}, {}, UCP_AM_SEND_FLAG_REPLY));
}

// Callers of an earlier generation, and those that come too late, are answered and left: refusing a call is
// where UCX breaks (openucx/ucx#11235). So are guests where there are too many: those of whom another call
// was taken, then the first.
bool Wire::answer_callers() {
  if (closed() || closing_ || !reception().progress()) return false;
  const auto callers = reception().take(world_.generation);
  for (const Reception::Caller& caller : callers) {
    const auto from = caller.id & 0xffffffff;
    const bool wanted =
        caller.id == caller_id(world_.generation, from) && from < self_ && is_open_to(peers_[from]);
    ucp_ep_params_t params = endpoint_params();
    params.field_mask |= UCP_EP_PARAM_FIELD_CONN_REQUEST;
    params.conn_request = caller.request;
    ucp_ep_h endpoint = nullptr;
    if (ucp().ucp_ep_create(worker_, &params, &endpoint) != UCS_OK) continue;  // it notices
    if (wanted) {
      guests_.push_back({.endpoint = endpoint});
    } else {
      close_endpoint(endpoint);
    }
  }
  while (guests_.size() > peers_.size() + kGuests) {
    const auto is_superfluous = [](const WirePeer& guest) { return guest.heard != TimePoint(); };
    auto first = std::ranges::find_if(guests_, is_superfluous);
    if (first == guests_.end()) first = guests_.begin();
    close_endpoint(first->endpoint);
    guests_.erase(first);
  }
  return !callers.empty();
}

// A hello with our nonce, from `rank`, came by this connection: a call, or the answer to one of ours.
void Wire::welcome(int rank, ucp_ep_h endpoint, std::uint64_t nonce) {
  WirePeer& peer = peers_[static_cast<std::size_t>(rank)];
  if (closing_) return;
  if (rank > this->rank()) {
    const auto call = std::ranges::find(peer.calls, endpoint, &PeerCall::endpoint);
    if (call == peer.calls.end() || call->failed || peer.endpoint != nullptr) return;
    peer.endpoint = endpoint;
    peer.calls.erase(call);
    peer.refused.clear();
    return;
  }
  const auto guest = std::ranges::find(guests_, endpoint, &WirePeer::endpoint);
  if (guest == guests_.end()) return;
  guest->heard = peer.heard;
  if (!is_open_to(peer)) return;
  const ucp_ep_h broken = std::exchange(peer.endpoint, endpoint);
  guests_.erase(guest);
  if (broken != nullptr) guests_.push_back({.endpoint = broken, .lost = peer.lost});  // until the end
  peer.lost.clear();
  peer.reported = false;
  peer.nonce = nonce;
  greet(peer, endpoint);
}

void Wire::lose(WirePeer& peer, ucs_status_t status) {
  if (peer.lost.empty()) peer.lost = ucp().ucs_status_string(status);
}

void Wire::on_error(void* self, ucp_ep_h endpoint, ucs_status_t status) {
  Wire& wire = *static_cast<Wire*>(self);
  for (std::vector<WirePeer>* const list : {&wire.peers_, &wire.guests_}) {
    const auto at = std::ranges::find(*list, endpoint, &WirePeer::endpoint);
    if (at != list->end()) return wire.lose(*at, status);
  }
  for (WirePeer& peer : wire.peers_) {
    const auto call = std::ranges::find(peer.calls, endpoint, &PeerCall::endpoint);
    if (call == peer.calls.end()) continue;
    call->failed = true;
    peer.refused = wire.ucp().ucs_status_string(status);
  }
}

void Wire::close_endpoint(ucp_ep_h endpoint) {
  const Transfer transfer = begin();
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  param.user_data = transfer.state_.get();
  param.cb.send = on_sent;
  static_cast<void>(begun(transfer, ucp().ucp_ep_close_nbx(endpoint, &param)));
}

}  // namespace regroup::collective
