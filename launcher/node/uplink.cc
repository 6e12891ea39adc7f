// Beats that do not come are counted, not time, as in children.cc.
#include "launcher/node/uplink.h"

#include <fmt/format.h>

#include <utility>
#include <variant>

namespace regroup::node {

Uplink::Uplink(boost::asio::io_context& loop, std::shared_ptr<launcher::SecureChannel> channel, bool beats,
               Link::Handlers handlers)
    : beats_(beats),
      handlers_(std::move(handlers)),
      timer_(loop),
      link_(std::move(channel), {[this](const Message& message) {
                                   unheard_ = 0;
                                   const auto take = handlers_.message;  // which may be replaced meanwhile
                                   if (!std::holds_alternative<Beat>(message)) take(message);
                                 },
                                 [this](const core::Status& why) {
                                   const auto closed = handlers_.closed;
                                   closed(why);
                                 }}) {
  beat();
}

void Uplink::beat() {
  timer_.expires_after(kBeat);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (error || !link_.open()) return;
    link_.send(Beat{});
    if (!beats_ || ++unheard_ <= kParentSilence / kBeat) return beat();
    link_.close();
    const auto closed = handlers_.closed;
    closed({core::Code::kPeerLost,
            fmt::format("the agent above has not been heard for {} s", kParentSilence.count())});
  });
}

}  // namespace regroup::node
