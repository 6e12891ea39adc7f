// The calls of UCX. All of them are made by the owner's thread, but for ucp_worker_signal.
//
// Deaths: an endpoint reports the death of its peer once (mode PEER); from then on nothing is sent to that
// peer, and whoever waits for it waits for the revoke. What came from it before stays.
#include "collective/ucx/wire.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "collective/ucx/reachability.h"

namespace regroup::collective {
namespace {

using core::Code;
using core::Result;
using core::Status;
using core::TimePoint;

constexpr unsigned kLetterId = 1;  // of our active messages
constexpr unsigned kAnswers = 16;  // turns, in one of which callers are answered
constexpr std::chrono::seconds kDrain(2);
constexpr std::chrono::milliseconds kGreeting(100);         // of one who is being connected
constexpr std::chrono::milliseconds kThanks(100);           // waited for at the end
constexpr std::chrono::seconds kSilence(1);                 // of a peer, before it is told
constexpr std::chrono::milliseconds kAcknowledgement(500);  // that a host takes at most

}  // namespace

Wire::Wire(std::shared_ptr<const UcxContext> context, const core::Arena& arena, core::World world, int self,
           Addresses addresses)
    : context_(std::move(context)),
      arena_(arena),
      world_(std::move(world)),
      self_(static_cast<std::size_t>(self)),
      addresses_(std::move(addresses)),
      peers_(world_.members.size()) {
  for (Peer& peer : peers_) peer.wire = this;
  stranger_.wire = this;
}

Result<std::shared_ptr<Wire>> Wire::open(std::shared_ptr<const UcxContext> context, const core::Arena& arena,
                                         core::World world, core::Seat self, Addresses addresses) {
  const int rank = world.rank_of(self);
  if (rank < 0 || self.slot >= arena.spec().slots) {
    return core::invalid_argument(
        fmt::format("open_wire: node {} slot {} is not in generation {}, or not in the arena", self.node,
                    self.slot, world.generation));
  }
  std::shared_ptr<Wire> wire(
      new Wire(std::move(context), arena, std::move(world), rank, std::move(addresses)));
  REGROUP_RETURN_IF_ERROR(wire->start());
  return wire;
}

Status Wire::failure(const char* call, ucs_status_t status) const {
  return {Code::kUnavailable,
          fmt::format("{}(generation {}): {}", call, world_.generation, ucp().ucs_status_string(status))};
}

Status Wire::start() {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_CLIENT_ID;
  params.thread_mode = UCS_THREAD_MODE_SINGLE;
  params.client_id = caller_id(world_.generation, self_);
  ucs_status_t status = ucp().ucp_worker_create(context_->handle(), &params, &worker_);
  if (status != UCS_OK) return worker_ = nullptr, failure("ucp_worker_create", status);
  status = ucp().ucp_worker_get_efd(worker_, &descriptor_);
  if (status != UCS_OK) return failure("ucp_worker_get_efd", status);
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kLetterId;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG | UCP_AM_FLAG_PERSISTENT_DATA;
  handler.cb = on_letter;
  handler.arg = this;
  status = ucp().ucp_worker_set_am_recv_handler(worker_, &handler);
  if (status != UCS_OK) return failure("ucp_worker_set_am_recv_handler", status);
  relay_ = std::make_unique<BellRelay>(line().bell, [this] { ucp().ucp_worker_signal(worker_); });
  return addresses_.publish(encode(reception().contacts()));
}

Wire::~Wire() { close(); }

// Whose sums may be on their way still has not come back from its operation: closing a connection on which
// something is unread would take them back. Of a generation that is over nobody waits for any.
void Wire::give_thanks() {
  if (closed() || is_over()) return;
  for (const Peer& peer : peers_) {
    if (peer.owed != 0) greet(static_cast<int>(&peer - peers_.data()));
  }
  const auto waits = [](const Peer& peer) { return peer.unthanked != 0 && peer.lost.empty(); };
  for (const TimePoint end = core::SystemClock().now() + kThanks;
       !is_over() && core::SystemClock().now() < end && std::ranges::any_of(peers_, waits);) {
    if (!progress()) ::sched_yield();
  }
}

ucp_ep_params_t Wire::params_for(Peer& peer) const {
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_FLAGS;
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {on_error, &peer};
  return params;
}

bool Wire::reach(int to) {
  Peer& peer = peers_[static_cast<std::size_t>(to)];
  if (peer.endpoint != nullptr || !peer.lost.empty() || closed()) return true;
  if (to < rank()) return false;  // it calls us
  if (!peer.asked) {
    const auto address = addresses_.find(world_.members[static_cast<std::size_t>(to)].id);
    if (!address) return false;
    peer.asked = true;
    peer.contacts = nearest_first(decode(*address), reception().contacts());
  }
  call_next(peer);
  return true;
}

std::size_t Wire::connections() const {
  std::size_t known = 0;
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) known += knows(rank) ? 1 : 0;
  return known;
}

// Tries one address after the other until one can be called.
void Wire::call_next(Peer& peer) {
  ucs_status_t status = UCS_ERR_UNREACHABLE;
  while (status != UCS_OK && !peer.contacts.empty()) {
    const SocketAddress address = to_socket_address(peer.contacts.front());
    peer.contacts.erase(peer.contacts.begin());
    ucp_ep_params_t params = params_for(peer);
    params.field_mask |= UCP_EP_PARAM_FIELD_SOCK_ADDR;
    params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER | UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID;
    params.sockaddr = {reinterpret_cast<const sockaddr*>(&address.storage), address.bytes};
    status = ucp().ucp_ep_create(worker_, &params, &peer.endpoint);
  }
  if (status == UCS_OK) return greet(static_cast<int>(&peer - peers_.data()));
  peer.endpoint = nullptr;
  lose(peer, status);
}

void Wire::greet(int rank) { static_cast<void>(send(rank, {{{}, LetterKind::kHello}, {}}, {})); }

// Callers of an earlier generation, and those that come too late, are answered and left: refusing a call is
// where UCX breaks (openucx/ucx#11235).
bool Wire::answer_callers() {
  if (closed() || closing_ || !reception().progress()) return false;
  const auto callers = reception().take(world_.generation);
  for (const Reception::Caller& caller : callers) {
    const auto from = caller.id & 0xffffffff;
    const bool wanted =
        caller.id == caller_id(world_.generation, from) && from < self_ && peers_[from].endpoint == nullptr;
    Peer& peer = wanted ? peers_[from] : stranger_;
    ucp_ep_params_t params = params_for(peer);
    params.field_mask |= UCP_EP_PARAM_FIELD_CONN_REQUEST;
    params.conn_request = caller.request;
    const ucs_status_t status = ucp().ucp_ep_create(worker_, &params, &peer.endpoint);
    if (status != UCS_OK) {
      peer.endpoint = nullptr;
      lose(peer, status);
    } else if (wanted) {
      greet(static_cast<int>(from));
    } else {
      close_endpoint(peer);
    }
  }
  return !callers.empty();
}

void Wire::lose(Peer& peer, ucs_status_t status) {
  if (peer.lost.empty()) peer.lost = ucp().ucs_status_string(status);
}

void Wire::report_lost(int rank) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (peer.lost.empty() || std::exchange(peer.reported, true) || !addresses_.on_peer_lost) return;
  addresses_.on_peer_lost(world_.members[static_cast<std::size_t>(rank)].id, peer.lost);
}

void Wire::report_silent(int rank, TimePoint since) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  const auto silence = core::SystemClock().now() - std::max(since, peer.heard);
  if (!addresses_.on_peer_silent || silence < kSilence || peer.told == Peer::kCutOff || !peer.lost.empty())
    return;
  const core::MemberId id = world_.members[static_cast<std::size_t>(rank)].id;
  const auto address = addresses_.find(id);
  const bool answers = !address || host_answers(decode(*address), kAcknowledgement);
  if (answers && peer.told == Peer::kSilent) return;
  peer.told = answers ? Peer::kSilent : Peer::kCutOff;
  const char* const more = !address  ? "; it has published no address"
                           : answers ? "; its host answers"
                                     : "; its host acknowledges nothing";
  addresses_.on_peer_silent(
      id, answers,
      fmt::format("rank {} has been silent for {:.1f} s in generation {}{}", rank,
                  std::chrono::duration<double>(silence).count(), world_.generation, more));
}

void Wire::leave_word(const std::string& why) {
  static_cast<void>(addresses_.publish(encode(reception().contacts(), why)));
}

std::string Wire::word_of(int rank) const {
  const Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (peer.endpoint != nullptr && peer.lost.empty() && peer.heard != TimePoint()) return {};
  const auto address = addresses_.find(world_.members[static_cast<std::size_t>(rank)].id);
  return address ? last_word_in(*address) : std::string();
}

void Wire::on_error(void* peer, ucp_ep_h, ucs_status_t status) {
  auto& lost = *static_cast<Peer*>(peer);
  lost.wire->lose(lost, status);
}

namespace {

ucp_request_param_t with_user_data(void* state) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.user_data = state;
  return param;
}

}  // namespace

// UCX may call back until it has done so: as long the state is counted, and holds itself.
Transfer Wire::begin() {
  Transfer transfer;
  transfer.state_ = std::make_shared<Transfer::State>();
  transfer.state_->wire = this;
  transfer.state_->self = transfer.state_;
  pending_ += 1;
  return transfer;
}

void Wire::end(Transfer::State& state) {
  if (std::exchange(state.done, true)) return;
  state.wire->pending_ -= 1;
  const auto last = std::move(state.self);
}

// What UCX has done at once, or refused (then the endpoint is lost, which its handler says), is at its end.
Transfer Wire::begun(Transfer transfer, ucs_status_ptr_t request) {
  if (UCS_PTR_IS_ERR(request)) transfer.state_->failed = true;
  if (!UCS_PTR_IS_PTR(request)) end(*transfer.state_);
  return transfer;
}

void Wire::on_sent(void* request, ucs_status_t status, void* state) {
  auto& transfer = *static_cast<Transfer::State*>(state);
  transfer.failed = status != UCS_OK;  // UCX may say so before it has returned the request
  transfer.wire->ucp().ucp_request_free(request);
  end(transfer);
}

void Wire::on_fetched(void* request, ucs_status_t status, std::size_t, void* state) {
  on_sent(request, status, state);
}

Transfer Wire::send(int to, const LetterHead& head, Input data) {
  Peer& peer = peers_[static_cast<std::size_t>(to)];
  if (peer.endpoint == nullptr || !peer.lost.empty() || closed()) return {};
  Transfer transfer = begin();
  transfer.state_->head = head;
  transfer.state_->head.key.from = rank();
  transfer.state_->head.thanks = std::exchange(peer.owed, 0);
  ucp_request_param_t param = with_user_data(transfer.state_.get());
  param.cb.send = on_sent;
  return begun(transfer, ucp().ucp_am_send_nbx(peer.endpoint, kLetterId, &transfer.state_->head,
                                               sizeof(LetterHead), data.data(), data.size(), &param));
}

ucs_status_t Wire::on_letter(void* self, const void* head, std::size_t head_bytes, void* data,
                             std::size_t bytes, const ucp_am_recv_param_t* param) {
  Wire& wire = *static_cast<Wire*>(self);
  const auto read =
      read_head({static_cast<const std::byte*>(head), head_bytes}, bytes, wire.world_.members.size());
  if (!read) return UCS_OK;
  Letter letter{*read};
  Peer& peer = wire.peers_[static_cast<std::size_t>(letter.head.key.from)];
  peer.heard = core::SystemClock().now();
  peer.told = Peer::kHeard;
  peer.unthanked -= std::min(peer.unthanked, letter.head.thanks);
  const bool call = letter.head.key.kind == LetterKind::kCall;
  if (letter.head.key.kind == LetterKind::kHello) return UCS_OK;
  if (call && wire.letters_.contains(letter.head.key)) return UCS_OK;  // it waits, and says so again
  letter.bytes = bytes;
  letter.fetch = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  if (bytes != 0 && !call) letter.data = data;
  wire.letters_.emplace(letter.head.key, letter);
  return letter.data == nullptr ? UCS_OK : UCS_INPROGRESS;
}

Letter* Wire::find(const LetterKey& key) {
  const auto found = letters_.lower_bound(key);
  return found != letters_.end() && found->first == key ? &found->second : nullptr;
}

Transfer Wire::take(const LetterKey& key, std::byte* to) {
  const auto found = letters_.lower_bound(key);
  Letter& letter = found->second;
  Transfer transfer;
  if (letter.fetch) {
    transfer = begin();
    transfer.state_->fetches = true;
    ucp_request_param_t param = with_user_data(transfer.state_.get());
    param.cb.recv_am = on_fetched;
    transfer = begun(transfer, ucp().ucp_am_recv_data_nbx(worker_, std::exchange(letter.data, nullptr), to,
                                                          letter.bytes, &param));
  } else if (letter.bytes != 0) {
    std::memcpy(to, letter.data, letter.bytes);
  }
  drop(found);
  return transfer;
}

void Wire::drop(Letters::iterator at) {
  if (at->second.data != nullptr) ucp().ucp_am_data_release(worker_, at->second.data);
  letters_.erase(at);
}

void Wire::drop(const LetterKey& key) { drop(letters_.lower_bound(key)); }

void Wire::drop_calls(const LineId& line, std::uint64_t until) {
  const auto first = letters_.lower_bound({line, LetterKind::kCall, 0, 0, 0});
  const auto behind = letters_.lower_bound({line, LetterKind::kCall, until + 1, 0, 0});
  letters_.erase(first, behind);  // they carry no data
}

bool Wire::progress() {
  bool moved = false;
  while (!closed() && ucp().ucp_worker_progress(worker_) != 0) moved = true;
  const bool in_turn = turns_++ % kAnswers == 0;  // a look costs as much as one at the letters
  return (in_turn && answer_callers()) || moved;
}

// Arming forgets the signals that came before it, hence the look at the bell behind it.
void Wire::sleep(std::uint32_t seen, TimePoint until) {
  const BellRelay::Nap nap(*relay_);
  if (ucp().ucp_worker_arm(worker_) != UCS_OK || !reception().arm() || nap.has_rung(seen)) return;
  const auto left = until - core::SystemClock().now();
  if (left <= core::Duration::zero()) return;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
  const timespec time{seconds.count(), (left - seconds).count()};
  pollfd entries[] = {{descriptor_, POLLIN, 0}, {reception().descriptor(), POLLIN, 0}};
  ::ppoll(entries, std::size(entries), &time, nullptr);
}

void Wire::close_endpoint(Peer& peer) {
  if (peer.endpoint == nullptr) return;
  const Transfer transfer = begin();
  ucp_request_param_t param = with_user_data(transfer.state_.get());
  param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  param.cb.send = on_sent;
  static_cast<void>(begun(transfer, ucp().ucp_ep_close_nbx(std::exchange(peer.endpoint, nullptr), &param)));
}

// An endpoint that ends while it is being connected can abort the other's process (tcp_ep.c: CTX_TYPE_TX).
void Wire::close() {
  give_thanks();
  if (closed()) return;
  const auto is_new = [](const Peer& peer) {
    return peer.endpoint != nullptr && peer.lost.empty() && peer.heard == TimePoint();
  };
  for (const TimePoint end = core::SystemClock().now() + kGreeting;
       core::SystemClock().now() < end && std::ranges::any_of(peers_, is_new);) {
    if (!progress()) ::sched_yield();
  }
  closing_ = true;
  while (!letters_.empty()) drop(letters_.begin());
  for (Peer& peer : peers_) close_endpoint(peer);
  for (const TimePoint end = core::SystemClock().now() + kDrain; core::SystemClock().now() < end;) {
    if (!progress() && pending_ == 0) break;
  }
  while (!letters_.empty()) drop(letters_.begin());
  relay_.reset();  // it signals the worker
  ucp().ucp_worker_destroy(std::exchange(worker_, nullptr));
}

}  // namespace regroup::collective
