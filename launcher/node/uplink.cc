// Beats that do not come are counted, not time, as in hearing.h.
#include "launcher/node/uplink.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "launcher/node/courier.h"
#include "launcher/node/wire.h"

namespace regroup::node {

Uplink::Uplink(boost::asio::io_context& loop, std::shared_ptr<launcher::SecureChannel> channel,
               core::NodeId node, bool below, Link::Handlers handlers)
    : node_(node), below_(below), handlers_(std::move(handlers)), timer_(loop) {
  if (below) conversation_.emplace();
  link_ = std::make_unique<Link>(std::move(channel), taking());
  beat();
}

Link::Handlers Uplink::taking() {
  return {[this](const Message& message) {
            unheard_ = 0;
            take(message);
          },
          [this](const core::Status& why) {
            const auto closed = handlers_.closed;  // which may be replaced meanwhile
            closed(why);
          }};
}

void Uplink::beat() {
  timer_.expires_after(kBeat);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (error || !link_->open()) return;
    link_->send(Beat{});
    if (!below_ || ++unheard_ <= kParentSilence / kBeat) return beat();
    fail({core::Code::kPeerLost,
          fmt::format("the agent above has not been heard for {} s", kParentSilence.count())});
  });
}

void Uplink::fail(const core::Status& why) {
  link_->close();
  const auto closed = handlers_.closed;
  closed(why);
}

void Uplink::send(const Message& message) {
  if (!conversation_) return link_->send(message);
  const auto bytes = std::make_shared<const std::vector<std::byte>>(encode(message));
  conversation_->say(bytes, is_answer(message));
  if (!adopting_) say(conversation_->unheard().back());
}

// What waits for an acknowledgement when we stand still has waited for long when we go on.
void Uplink::tell_pause(const HostNotice& notice) {
  const bool pauses = notice.kind == HostNotice::Kind::kPauses;
  link_->send(notice);
  link_->set_silence(Link::limits().silence +
                     std::chrono::milliseconds(pauses ? notice.within_ms : std::uint32_t{0}));
}

void Uplink::say(const Conversation::Said& said) {
  link_->send(Relayed{{node_}, *said.message, said.answered, {said.number}});
}

void Uplink::take(const Message& message) {
  if (std::holds_alternative<Beat>(message)) return;
  if (const auto* heard = std::get_if<Heard>(&message)) return on_heard(*heard);
  const auto handler = handlers_.message;  // which may be replaced meanwhile
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
  take_own(*relayed, static_cast<std::size_t>(at));
}

void Uplink::take_own(const Relayed& relayed, std::size_t at) {
  if (!conversation_ || !conversation_->take(relayed.numbers[at], relayed.message.size())) return;
  if (const auto heard = conversation_->due()) link_->send(Heard{*heard});
  const auto said = decode(relayed.message);
  if (!said.ok()) return fail(said.status());
  const auto handler = handlers_.message;
  handler(*said);
}

void Uplink::on_heard(const Heard& heard) {
  if (!conversation_) return;
  conversation_->heard(heard.number);
  if (heard.then != Heard::Then::kAgain) return;
  for (const Conversation::Said& said : conversation_->unheard()) say(said);
  if (!std::exchange(adopting_, false)) return;
  below_ = false;
  adopted_();
}

void Uplink::adopt(std::shared_ptr<launcher::SecureChannel> channel) {
  adopting_ = true;
  unheard_ = 0;
  link_ = std::make_unique<Link>(std::move(channel), taking());
  link_->send(Heard{conversation_->taken(), Heard::Then::kAdopt});
  beat();
}

}  // namespace regroup::node
