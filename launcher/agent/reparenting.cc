// A channel is handed over only when its handshake is complete: a process that has taken over the
// address of the controller cannot complete it, and does not end the attempt.
#include "launcher/agent/reparenting.h"

#include <utility>

#include "base/clock.h"
#include "launcher/agent/link.h"
#include "launcher/agent/tree.h"
#include "launcher/transport/tcp.h"

namespace regroup::agent {
namespace {

constexpr std::chrono::seconds kDialLimit{3};
constexpr std::chrono::milliseconds kPause{100};

}  // namespace

Reparenting::Reparenting(boost::asio::io_context& loop, const NodeAgentOptions& options,
                         std::string endpoints, Events events)
    : loop_(loop),
      job_(options.job),
      endpoints_(std::move(endpoints)),
      node_(options.node),
      secret_(options.secret),
      events_(std::move(events)),
      timer_(loop) {}

void Reparenting::start() {
  const base::TimePoint now = base::SystemClock().now();
  if (deadline_ == base::TimePoint()) deadline_ = now + kOrphanLimit;
  dial();
}

void Reparenting::dial() {
  auto endpoints = transport::parse_endpoints(endpoints_);
  if (!endpoints.ok()) return events_.failed(endpoints.status());
  transport::dial(loop_, *endpoints, kDialLimit,
                  [this, alive = alive_](base::Result<base::Fd> socket) {
                    if (*alive) on_socket(std::move(socket));
                  });
}

void Reparenting::on_socket(base::Result<base::Fd> socket) {
  if (!socket.ok()) return retry(socket.status());
  auto context = transport::TlsContext::make(job_, node_, secret_);
  if (!context.ok()) return events_.failed(context.status());
  auto channel = transport::SecureChannel::client(loop_, *context, std::move(*socket), kController,
                                                  Link::limits());
  if (!channel.ok()) return retry(channel.status());
  channel_ = *channel;
  channel_->start({.message = {},
                   .closed =
                       [this, alive = alive_](const base::Status& why) {
                         if (*alive) retry(why);
                       },
                   .opened =
                       [this, alive = alive_] {
                         if (*alive) events_.connected(std::exchange(channel_, nullptr));
                       }});
}

void Reparenting::retry(const base::Status& why) {
  if (why.code() == base::Code::kPeerLost && !channel_)
    return events_.failed(why);  // connection refused
  channel_.reset();
  if (base::SystemClock().now() + kPause >= deadline_) return events_.failed(why);
  timer_.expires_after(kPause);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) dial();
  });
}

}  // namespace regroup::agent
