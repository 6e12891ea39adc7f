// The parent is watched by counting heartbeat intervals, not time: heartbeat_monitor.h says why. On
// the connection to the controller that replaces a lost parent, Ack{kReparent} is the first
// message, and this agent sends no numbered one before Ack{kRetransmit} has come: a new message
// would overtake the unacknowledged ones, and be dropped for that. A message for this agent and
// others is passed on to the others first, because handling it may end this agent.
#include "launcher/agent/uplink.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "launcher/agent/router.h"
#include "launcher/agent/wire.h"

namespace regroup::agent {

Uplink::Uplink(boost::asio::io_context& loop, std::shared_ptr<transport::SecureChannel> channel,
               proto::NodeId node, bool below, Link::Handlers handlers)
    : node_(node), below_(below), handlers_(std::move(handlers)), timer_(loop) {
  if (below) session_.emplace();
  link_ = std::make_unique<Link>(std::move(channel), make_handlers());
  schedule_heartbeat();
}

Link::Handlers Uplink::make_handlers() {
  return {[this](const Message& message) {
            missed_ = 0;
            receive(message);
          },
          [this](const base::Status& why) {
            const auto closed = handlers_.closed;  // a copy: the call may replace it
            closed(why);
          }};
}

void Uplink::schedule_heartbeat() {
  timer_.expires_after(kHeartbeatInterval);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (error || !link_->open()) return;
    link_->send(Heartbeat{});
    if (!below_ || ++missed_ <= kParentSilence / kHeartbeatInterval) return schedule_heartbeat();
    fail(base::peer_lost(
        fmt::format("no message from the parent agent for {} s", kParentSilence.count())));
  });
}

void Uplink::fail(const base::Status& why) {
  link_->close();
  const auto closed = handlers_.closed;
  closed(why);
}

void Uplink::send(const Message& message) {
  if (!session_) return link_->send(message);
  const auto bytes = std::make_shared<const std::vector<std::byte>>(encode(message));
  session_->enqueue(bytes, is_answer(message));
  if (!reparenting_) transmit(session_->unacked().back());
}

// The kernel's own limit is raised, too: bytes that are unacknowledged when this host pauses would
// have exceeded it when the host runs again.
void Uplink::send_pause(const HostNotice& notice) {
  const bool pauses = notice.kind == HostNotice::Kind::kPauses;
  link_->send(notice);
  link_->set_silence(Link::limits().silence +
                     std::chrono::milliseconds(pauses ? notice.within_ms : std::uint32_t{0}));
}

void Uplink::transmit(const ReliableSession::Sent& sent) {
  link_->send(Relayed{{node_}, *sent.message, sent.answered, {sent.number}});
}

void Uplink::receive(const Message& message) {
  if (std::holds_alternative<Heartbeat>(message)) return;
  if (const auto* ack = std::get_if<Ack>(&message)) return on_ack(*ack);
  const auto handler = handlers_.message;  // a copy: the call may replace it
  const auto* relayed = std::get_if<Relayed>(&message);
  if (relayed == nullptr || relayed->numbers.empty()) return handler(message);
  const auto own = std::ranges::find(relayed->nodes, node_);
  if (own == relayed->nodes.end()) return handler(message);
  const std::ptrdiff_t at = own - relayed->nodes.begin();
  if (relayed->nodes.size() > 1) {
    Relayed others = *relayed;
    others.nodes.erase(others.nodes.begin() + at);
    others.numbers.erase(others.numbers.begin() + at);
    handler(others);
  }
  receive_own(*relayed, static_cast<std::size_t>(at));
}

void Uplink::receive_own(const Relayed& relayed, std::size_t at) {
  if (!session_ || !session_->accept(relayed.numbers[at], relayed.message.size())) return;
  if (const auto due = session_->ack_due()) link_->send(Ack{*due});
  const auto message = decode(relayed.message);
  if (!message.ok()) return fail(message.status());
  const auto handler = handlers_.message;
  handler(*message);
}

void Uplink::on_ack(const Ack& ack) {
  if (!session_) return;
  session_->acknowledge(ack.number);
  if (ack.action != Ack::Action::kRetransmit) return;
  for (const ReliableSession::Sent& sent : session_->unacked()) transmit(sent);
  if (!std::exchange(reparenting_, false)) return;
  below_ = false;
  reparented_();
}

void Uplink::reparent(std::shared_ptr<transport::SecureChannel> channel) {
  reparenting_ = true;
  missed_ = 0;
  link_ = std::make_unique<Link>(std::move(channel), make_handlers());
  link_->send(Ack{session_->accepted(), Ack::Action::kReparent});
  schedule_heartbeat();
}

}  // namespace regroup::agent
