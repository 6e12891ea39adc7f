// What the tests of launcher/transport share: a loop that runs until something has happened, nodes
// of a job, peers that speak plain TCP, and certificates for those that have nothing better.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "launcher/transport/job_secret.h"
#include "launcher/transport/secure_channel.h"
#include "launcher/transport/secure_listener.h"
#include "launcher/transport/tcp.h"
#include "launcher/transport/tls_session.h"

namespace regroup::transport {

inline constexpr std::chrono::seconds kDeadline{20};
inline constexpr proto::NodeId kServer = 0, kClient = 7;

inline std::shared_ptr<const JobSecret> new_secret() {
  auto secret = JobSecret::generate();
  EXPECT_TRUE(secret.ok()) << secret.status().to_string();
  return *secret;
}

inline std::shared_ptr<const TlsContext> node(std::shared_ptr<const JobSecret> secret,
                                              proto::NodeId self,
                                              const std::string& job = "job-1") {
  auto context = TlsContext::make(job, self, std::move(secret));
  EXPECT_TRUE(context.ok()) << context.status().to_string();
  return *context;
}

// Runs the loop until `happened`; false if that took longer than `limit`.
template <class Condition>
bool run_until(boost::asio::io_context& loop, Condition happened,
               base::Duration limit = kDeadline) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!happened()) {
    if (std::chrono::steady_clock::now() > end) return false;
    loop.restart();
    loop.run_one_for(std::chrono::milliseconds(20));
  }
  return true;
}

// A plain connection to 127.0.0.1, whose calls wait kDeadline at most.
inline base::Fd connect_to(std::uint16_t port) {
  base::Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval limit{kDeadline.count(), 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return socket;
}

// The other side has ended the connection: by its end or by a reset.
inline bool ended(const base::Fd& socket) {
  char bytes[4096];
  const ssize_t count = ::recv(socket.get(), bytes, sizeof bytes, MSG_DONTWAIT);
  return count == 0 || (count < 0 && errno != EAGAIN);
}

// A listener for node kServer and what came of its peers.
struct Server {
  explicit Server(boost::asio::io_context& loop, std::shared_ptr<const TlsContext> context,
                  SecureListenerLimits limits = {})
      : listener(
            loop, std::move(context),
            [this](std::shared_ptr<SecureChannel> channel) {
              channel->set_handlers(
                  {.message = [this](const proto::Message& m) { received.push_back(m); },
                   .closed = [this](const base::Status& why) { closed.push_back(why); }});
              channels.push_back(std::move(channel));
            },
            limits) {
    EXPECT_TRUE(listener.start(0).ok());
  }
  ~Server() {
    for (const auto& channel : channels) channel->close();
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  SecureListener listener;
  std::vector<std::shared_ptr<SecureChannel>> channels;
  std::vector<proto::Message> received;
  std::vector<base::Status> closed;
};

// A SecureChannel as client.
struct Client {
  Client(boost::asio::io_context& loop, std::shared_ptr<const TlsContext> context, base::Fd socket,
         proto::NodeId server = kServer, SecureChannelLimits limits = {}) {
    auto made = SecureChannel::client(loop, std::move(context), std::move(socket), server, limits);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    channel = *made;
    channel->start({.message = [this](const proto::Message& m) { received.push_back(m); },
                    .closed = [this](const base::Status& why) { closed.push_back(why); },
                    .opened = [this] { opened = true; }});
  }
  ~Client() { channel->close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  std::shared_ptr<SecureChannel> channel;
  std::vector<proto::Message> received;
  std::vector<base::Status> closed;
  bool opened = false;
};

// A stranger's TLS, by OpenSSL's means alone and over a blocking socket. `server`: with a
// certificate that it signed itself.
class ForeignTls {
 public:
  ForeignTls(bool server, int highest_version);
  ForeignTls(const ForeignTls&) = delete;
  ForeignTls& operator=(const ForeignTls&) = delete;
  ~ForeignTls();
  // Whether the handshake over `socket` succeeds and the first byte comes back or not.
  [[nodiscard]] bool shake_hands(const base::Fd& socket);

 private:
  const bool server_;
  SSL_CTX* context_;
};

}  // namespace regroup::transport
