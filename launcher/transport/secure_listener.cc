// Under a flood the oldest unauthenticated connection without any proof is closed first: a peer
// with the secret needs a few milliseconds, a half-open connection shows nothing.
#include "launcher/transport/secure_listener.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "launcher/transport/tcp.h"

namespace regroup::transport {
namespace {

constexpr int kAcceptsPerTurn = 16;  // then the accepted ones are served
constexpr std::chrono::milliseconds kRetry{20};

}  // namespace

SecureListener::SecureListener(boost::asio::io_context& loop,
                               std::shared_ptr<const TlsContext> context, Accepted accepted,
                               SecureListenerLimits limits)
    : loop_(loop),
      context_(std::move(context)),
      accepted_(std::move(accepted)),
      limits_(limits),
      socket_(loop),
      retry_(loop) {}

SecureListener::~SecureListener() {
  for (const auto& entry : pending_) entry->close();
}

base::Status SecureListener::start(std::uint16_t port) {
  REGROUP_ASSIGN_OR_RETURN(auto socket, listen_tcp(port));
  REGROUP_ASSIGN_OR_RETURN(port_, port_of(socket));
  socket_.assign(socket.release());
  wait();
  return {};
}

void SecureListener::wait() {
  socket_.async_wait(socket_.wait_read, [this](const boost::system::error_code& error) {
    if (!error) accept();
  });
}

void SecureListener::accept() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    base::Fd socket(
        ::accept4(socket_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.valid()) {
      on_accepted(std::move(socket));
    } else if (errno == EAGAIN) {
      return wait();
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      return on_no_room();
    }  // else that connection had been closed already
  }
  wait();
}

// The kernel keeps the connection until there is room; retrying at once would be a busy loop.
void SecureListener::on_no_room() {
  evict_one();
  retry_.expires_after(kRetry);
  retry_.async_wait([this](const boost::system::error_code& error) {
    if (!error) accept();
  });
}

void SecureListener::on_accepted(base::Fd socket) {
  if (pending_.size() >= limits_.unauthenticated) evict_one();
  auto made = SecureChannel::server(loop_, context_, std::move(socket), limits_.channel);
  if (!made.ok()) {
    ++rejected_;
    last_reason_ = made.status();
    return;
  }
  const auto entry = pending_.insert(pending_.end(), *made);
  (*made)->start({.message = {},
                  .closed = [this, entry](const base::Status& why) { reject(entry, why); },
                  .opened =
                      [this, entry] {
                        const auto channel = *entry;
                        pending_.erase(entry);
                        channel->set_handlers({});
                        accepted_(channel);
                      }});
}

void SecureListener::evict_one() {
  if (pending_.empty()) return;
  const auto without_proof = std::find_if(pending_.begin(), pending_.end(),
                                          [](const auto& entry) { return !entry->proved(); });
  const auto victim = without_proof != pending_.end() ? without_proof : pending_.begin();
  (*victim)->close();
  reject(victim,
         {base::Code::kResourceExhausted,
          fmt::format("{}: closed, since there are more than {} unauthenticated connections",
                      (*victim)->address(), limits_.unauthenticated)});
}

void SecureListener::reject(Pending::iterator entry, base::Status why) {
  pending_.erase(entry);
  ++rejected_;
  last_reason_ = std::move(why);
}

}  // namespace regroup::transport
