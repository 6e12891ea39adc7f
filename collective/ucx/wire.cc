// The calls of UCX, but for those that connect. All of them are made by the owner's thread, but for
// ucp_worker_signal.
//
// Deaths: an endpoint reports the death of its peer once (mode PEER); from then on nothing is sent to that
// peer, and whoever waits for it waits for the revoke. What came from it before stays.
#include "collective/ucx/wire.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/random.h>

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
constexpr std::chrono::milliseconds kGreeting(100);  // of one who is being connected
constexpr std::chrono::milliseconds kThanks(100);    // waited for at the end
constexpr std::chrono::seconds kDelivery(2);         // likewise, where the other has no room for letters
constexpr std::chrono::milliseconds kLook(10);       // whether it has
constexpr std::chrono::seconds kSilence(1);          // of a peer, before it is told
constexpr std::chrono::milliseconds kAcknowledgement(500);  // that a host takes at most

}  // namespace

Wire::Wire(std::shared_ptr<const UcxContext> context, const core::Arena& arena, core::World world, int self,
           Addresses addresses)
    : context_(std::move(context)),
      arena_(arena),
      world_(std::move(world)),
      self_(static_cast<std::size_t>(self)),
      addresses_(std::move(addresses)),
      peers_(world_.members.size()),
      letters_(world_.members.size()) {}

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
  if (::getrandom(&nonce_, sizeof nonce_, 0) != sizeof nonce_)
    return core::system_error("getrandom", "the nonce of a wire", errno);
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
  return addresses_.publish(encode(nonce_, reception().contacts()));
}

Wire::~Wire() { close(); }

// Whose sums may be on their way still has not come back from its operation: closing a connection on which
// something is unread would take them back, and who hears of the close reads once more and no further. So
// they have to be with the other's kernel at least. Of a generation that is over nobody waits for any.
void Wire::give_thanks() {
  if (closed() || is_over()) return;
  for (const WirePeer& peer : peers_) {
    if (peer.owed != 0)
      static_cast<void>(
          send(static_cast<int>(&peer - peers_.data()), {{{}, LetterKind::kHello, nonce_}, {}}, {}));
  }
  const auto waits = [](const WirePeer& peer) { return peer.unthanked != 0 && peer.lost.empty(); };
  const auto lacks_bytes = [&](const WirePeer& peer) {
    if (!waits(peer)) return false;
    const auto rank = static_cast<std::size_t>(&peer - peers_.data());
    const auto address = addresses_.find(world_.members[rank].id);
    std::vector<Contact> there = decode(address.value_or(std::vector<std::byte>()));
    there.push_back({AF_INET, 0, 8, {127, 0, 0, 1}});  // UCX's way to members on this host
    return has_unsent(there);
  };
  const TimePoint begin = core::SystemClock().now();
  for (TimePoint look = begin + kThanks; !is_over() && std::ranges::any_of(peers_, waits);) {
    if (const TimePoint now = core::SystemClock().now(); now >= look) {
      if (now >= begin + kDelivery || std::ranges::none_of(peers_, lacks_bytes)) break;
      look = now + kLook;
    }
    if (!progress()) ::sched_yield();
  }
}

void Wire::report_lost(int rank) {
  WirePeer& peer = peers_[static_cast<std::size_t>(rank)];
  if (peer.lost.empty() || std::exchange(peer.reported, true) || !addresses_.on_peer_lost) return;
  addresses_.on_peer_lost(world_.members[static_cast<std::size_t>(rank)].id, peer.lost);
}

void Wire::report_silent(int rank, TimePoint since) {
  WirePeer& peer = peers_[static_cast<std::size_t>(rank)];
  const auto silence = core::SystemClock().now() - std::max(since, peer.heard);
  if (!addresses_.on_peer_silent || silence < kSilence || peer.told == WirePeer::kCutOff ||
      !peer.lost.empty())
    return;
  const core::MemberId id = world_.members[static_cast<std::size_t>(rank)].id;
  const auto address = addresses_.find(id);
  const bool answers = !address || host_answers(decode(*address), kAcknowledgement);
  if (answers && peer.told == WirePeer::kSilent) return;
  peer.told = answers ? WirePeer::kSilent : WirePeer::kCutOff;
  const char* const more = !address  ? "; it has published no address"
                           : answers ? "; its host answers"
                                     : "; its host acknowledges nothing";
  addresses_.on_peer_silent(
      id, answers,
      fmt::format("rank {} has been silent for {:.1f} s in generation {}{}", rank,
                  std::chrono::duration<double>(silence).count(), world_.generation, more));
}

void Wire::leave_word(const std::string& why) {
  static_cast<void>(addresses_.publish(encode(nonce_, reception().contacts(), why)));
}

std::string Wire::word_of(int rank) const {
  const WirePeer& peer = peers_[static_cast<std::size_t>(rank)];
  if (peer.endpoint != nullptr && peer.lost.empty() && peer.heard != TimePoint()) return {};
  const auto address = addresses_.find(world_.members[static_cast<std::size_t>(rank)].id);
  return address ? last_word_in(*address) : std::string();
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
  WirePeer& peer = peers_[static_cast<std::size_t>(to)];
  if (peer.endpoint == nullptr || !peer.lost.empty() || closed()) return {};
  if (head.key.kind == LetterKind::kReady) letters_.ask(to);
  peer.used = true;
  return send_by(peer.endpoint, peer, head, data, 0);
}

Transfer Wire::send_by(ucp_ep_h endpoint, WirePeer& to, const LetterHead& head, Input data, unsigned flags) {
  Transfer transfer = begin();
  transfer.state_->head = head;
  transfer.state_->head.key.from = rank();
  transfer.state_->head.thanks = std::exchange(to.owed, 0);
  transfer.state_->head.nonce = to.nonce;
  ucp_request_param_t param = with_user_data(transfer.state_.get());
  param.cb.send = on_sent;
  param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = flags;
  return begun(transfer, ucp().ucp_am_send_nbx(endpoint, kLetterId, &transfer.state_->head,
                                               sizeof(LetterHead), data.data(), data.size(), &param));
}

ucs_status_t Wire::on_letter(void* self, const void* head, std::size_t head_bytes, void* data,
                             std::size_t bytes, const ucp_am_recv_param_t* param) {
  Wire& wire = *static_cast<Wire*>(self);
  const auto read = read_head({static_cast<const std::byte*>(head), head_bytes}, bytes,
                              wire.world_.members.size(), wire.nonce_);
  if (!read) return wire.refused_ += 1, UCS_OK;
  Letter letter{*read};
  const LetterKey& key = letter.head.key;
  WirePeer& peer = wire.peers_[static_cast<std::size_t>(key.from)];
  peer.heard = core::SystemClock().now();
  peer.told = WirePeer::kHeard;
  peer.unthanked -= std::min(peer.unthanked, letter.head.thanks);
  if (key.kind == LetterKind::kHello) {
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0)
      wire.welcome(key.from, param->reply_ep, key.number);
    return UCS_OK;
  }
  peer.used = true;
  const bool call = key.kind == LetterKind::kCall;
  if (call && wire.find(key) != nullptr) return UCS_OK;  // it waits, and says so again
  letter.bytes = bytes;
  letter.fetch = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  if (bytes != 0 && !call) letter.data = data;
  Status status = wire.letters_.put(letter);
  if (status.ok()) return letter.data == nullptr ? UCS_OK : UCS_INPROGRESS;
  wire.refused_ += 1;
  if (wire.overrun_.ok()) wire.overrun_ = std::move(status);
  return UCS_OK;
}

Transfer Wire::take(const LetterKey& key, std::byte* to) {
  Letter letter = letters_.remove(key);
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
  release(letter);
  return transfer;
}

void Wire::release(const Letter& letter) {
  if (letter.data != nullptr) ucp().ucp_am_data_release(worker_, letter.data);
}

// By letters that are refused nothing moves: who sends them without end is not to keep us from our deadline.
bool Wire::progress() {
  const std::uint64_t refused = refused_;
  bool moved = false;
  while (!closed() && refused_ == refused && ucp().ucp_worker_progress(worker_) != 0) moved = true;
  const bool in_turn = turns_++ % kAnswers == 0;  // a look costs as much as one at the letters
  return (in_turn && answer_callers()) || (moved && refused_ == refused);
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

// An endpoint that ends while it is being connected can abort the other's process (tcp_ep.c: CTX_TYPE_TX).
void Wire::await_greetings() {
  const TimePoint begin = core::SystemClock().now();
  const auto is_fresh = [&](const PeerCall& call) { return !call.failed && call.since > begin - kGreeting; };
  const auto is_new = [&](const WirePeer& peer) {
    if (std::ranges::any_of(peer.calls, is_fresh)) return true;
    const bool begun = peer.endpoint != nullptr || waits_for_answer(peer);
    return begun && peer.lost.empty() && peer.heard == TimePoint();
  };
  for (const TimePoint end = core::SystemClock().now() + kGreeting;
       core::SystemClock().now() < end &&
       (std::ranges::any_of(peers_, is_new) || std::ranges::any_of(guests_, is_new));) {
    if (!progress()) ::sched_yield();
  }
}

void Wire::close() {
  give_thanks();
  if (closed()) return;
  await_greetings();
  closing_ = true;
  const auto drop_all = [this] {
    while (const auto letter = letters_.remove_any()) release(*letter);
  };
  drop_all();
  for (WirePeer& peer : peers_) {
    if (peer.endpoint != nullptr) close_endpoint(std::exchange(peer.endpoint, nullptr));
    for (const PeerCall& call : std::exchange(peer.calls, {})) close_endpoint(call.endpoint);
  }
  for (const WirePeer& guest : std::exchange(guests_, {})) close_endpoint(guest.endpoint);
  for (const TimePoint end = core::SystemClock().now() + kDrain; core::SystemClock().now() < end;) {
    if (!progress() && pending_ == 0) break;
  }
  drop_all();
  relay_.reset();  // it signals the worker
  ucp().ucp_worker_destroy(std::exchange(worker_, nullptr));
}

}  // namespace regroup::collective
