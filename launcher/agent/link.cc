// The first byte of a frame tells whether more parts of the same message follow. All parts of a
// message are queued at once, so parts of two messages never interleave, and a part needs no
// number.
#include "launcher/agent/link.h"

#include <algorithm>
#include <utility>

#include "launcher/agent/wire.h"

namespace regroup::agent {
namespace {

constexpr std::byte kLast{0};
constexpr std::byte kMore{1};
constexpr std::size_t kPart = 768 << 10;
static_assert(kPart + 1 <= proto::kMaxFrameBytes);

}  // namespace

Link::Link(std::shared_ptr<transport::SecureChannel> channel, Handlers handlers)
    : state_(std::make_shared<State>(State{std::move(handlers), {}})),
      channel_(std::move(channel)) {
  channel_->set_handlers(
      {.message = {},
       .closed =
           [state = state_](const base::Status& why) {
             const auto closed = state->handlers.closed;  // a copy: the call may destroy the Link
             closed(why);
           },
       .payload = [state =
                       state_](std::span<const std::byte> part) { return take(*state, part); }});
}

transport::SecureChannelLimits Link::limits() {
  transport::SecureChannelLimits limits;
  limits.most_queued = kMostBytes + limits.most_queued;
  return limits;
}

void Link::send(const Message& message) { send_encoded(encode(message)); }

void Link::send_encoded(std::span<const std::byte> bytes) {
  std::vector<std::byte> part;
  for (std::size_t at = 0; at < bytes.size(); at += kPart) {
    const auto piece = bytes.subspan(at, std::min(kPart, bytes.size() - at));
    part.assign(1, at + piece.size() == bytes.size() ? kLast : kMore);
    part.insert(part.end(), piece.begin(), piece.end());
    channel_->send_payload(part);
  }
}

base::Status Link::take(State& state, std::span<const std::byte> part) {
  if (part.empty() || (part[0] != kLast && part[0] != kMore) ||
      state.partial.size() + part.size() > kMostBytes) {
    return base::data_loss("malformed part of a message between controller and agent");
  }
  state.partial.insert(state.partial.end(), part.begin() + 1, part.end());
  if (part[0] == kMore) return {};
  REGROUP_ASSIGN_OR_RETURN(const auto message, decode(std::exchange(state.partial, {})));
  const auto handler = state.handlers.message;  // a copy: the call may replace it
  handler(message);
  return {};
}

}  // namespace regroup::agent
