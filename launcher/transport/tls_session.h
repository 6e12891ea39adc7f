// TLS 1.3 with an external PSK over a connected socket, one step at a time, without an event loop
// (secure_channel.h adds it). Only processes with the job's secret can connect. No certificates, no
// tickets, no early data; always (EC)DHE, so recorded traffic stays secret even if the secret leaks
// later. docs/design/hosts.md.
#pragma once

#include <openssl/types.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "launcher/transport/job_secret.h"
#include "proto/world.h"

struct bio_method_st;   // OpenSSL's BIO_METHOD
struct ssl_session_st;  // OpenSSL's SSL_SESSION

namespace regroup::transport {

// The PSK identity: job, client and intended server. A server refuses a connection that is not
// meant for it, so an attacker cannot redirect a node's connection to itself or to another node.
struct LinkName {
  std::string job;  // 1 to 64 of [A-Za-z0-9._-]
  proto::NodeId from = 0;
  proto::NodeId to = 0;

  [[nodiscard]] std::string to_string() const;  // "regroup1 JOB FROM TO"
  [[nodiscard]] static std::optional<LinkName> parse(std::string_view text);
  bool operator==(const LinkName&) const = default;
};

// The TLS settings and keys that all connections of a process share. Immutable; any thread.
class TlsContext {
 public:
  // kInvalidArgument: the job id is invalid.
  [[nodiscard]] static base::Result<std::shared_ptr<const TlsContext>> make(
      std::string job, proto::NodeId self, std::shared_ptr<const JobSecret> secret);
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;
  ~TlsContext();

 private:
  friend class TlsSession;
  TlsContext(std::string job, proto::NodeId self, std::shared_ptr<const JobSecret> secret)
      : job_(std::move(job)), self_(self), secret_(std::move(secret)) {}
  [[nodiscard]] base::Status set_up();

  const std::string job_;
  const proto::NodeId self_;
  const std::shared_ptr<const JobSecret> secret_;
  SSL_CTX* context_ = nullptr;
  bio_method_st* socket_method_ = nullptr;
};

// One connection. Never blocks, never raises SIGPIPE. An error is final. One thread at a time.
class TlsSession {
 public:
  enum class Want { kNothing, kRead, kWrite };  // the readiness that the socket needs first
  struct Progress {
    std::size_t bytes = 0;  // 0: wait for `want`
    Want want = Want::kNothing;
  };
  // Limit of bytes from a peer before it is authenticated.
  static constexpr std::size_t kMostHandshakeBytes = 16 << 10;

  // `fd` is a connected stream socket, which the caller keeps open while this object lives.
  [[nodiscard]] static base::Result<std::unique_ptr<TlsSession>> client(
      std::shared_ptr<const TlsContext> context, int fd, proto::NodeId server);
  [[nodiscard]] static base::Result<std::unique_ptr<TlsSession>> server(
      std::shared_ptr<const TlsContext> context, int fd);
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;
  ~TlsSession();

  // Continues the handshake. kNothing: both sides are authenticated. kInvalidArgument: the peer
  // failed to authenticate; the message says why. kPeerLost: the connection is lost.
  [[nodiscard]] base::Result<Want> handshake();
  // Reads up to bytes.size() bytes, at most one record of 16 KiB. kPeerLost: the peer has closed.
  [[nodiscard]] base::Result<Progress> read(std::span<std::byte> bytes);
  // Writes a prefix of `bytes`. If it wrote nothing, the next call must begin with the same bytes.
  [[nodiscard]] base::Result<Progress> write(std::span<const std::byte> bytes);
  // Sends close_notify, unless the socket is not writable now.
  void say_end();

  // For the server, before the handshake is complete: true if the client has shown that it knows
  // the secret, or replays a client that did.
  [[nodiscard]] bool proved() const;
  // The peer's node id; meaningful after the handshake.
  [[nodiscard]] proto::NodeId peer() const { return peer_; }

 private:
  friend class TlsContext;
  struct Callbacks;
  enum class Failure { kNone, kClosed, kSystem, kTooMuch };
  TlsSession(std::shared_ptr<const TlsContext> context, int fd)
      : context_(std::move(context)), fd_(fd) {}
  [[nodiscard]] static base::Result<std::unique_ptr<TlsSession>> make(
      std::shared_ptr<const TlsContext> context, int fd);
  [[nodiscard]] base::Result<Want> want(int returned, std::string_view what);
  [[nodiscard]] base::Status failure(std::string_view what) const;
  void failed(BIO* bio, int retry);
  [[nodiscard]] ssl_session_st* make_key(const std::string& identity) const;

  const std::shared_ptr<const TlsContext> context_;
  const int fd_;
  SSL* ssl_ = nullptr;
  proto::NodeId peer_ = 0;
  std::string identity_;  // of the client
  std::size_t received_ = 0;
  bool done_ = false;
  Failure failure_ = Failure::kNone;
  int errno_ = 0;
};

}  // namespace regroup::transport
