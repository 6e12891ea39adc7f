// TLS 1.3 with an external PSK over a connected socket, one step at a time: whoever has the job's secret gets
// in, and nobody else. No certificates, no tickets, no early data; (EC)DHE always, so recorded traffic stays
// closed even to who learns the secret later. docs/design/hosts.md. No event loop here: launcher/net/
// secure_channel.h brings it.
#pragma once

#include <openssl/types.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/status.h"
#include "core/world.h"
#include "launcher/net/job_secret.h"

struct bio_method_st;   // OpenSSL's BIO_METHOD
struct ssl_session_st;  // OpenSSL's SSL_SESSION

namespace regroup::launcher {

// The PSK identity: which job, who speaks, whom it wants. A server refuses what is not meant for it, so that
// a node's connection cannot be led back to itself or to another node.
struct LinkName {
  std::string job;  // 1 to 64 of [A-Za-z0-9._-]
  core::NodeId from = 0;
  core::NodeId to = 0;

  [[nodiscard]] std::string to_string() const;  // "regroup1 JOB FROM TO"
  [[nodiscard]] static std::optional<LinkName> parse(std::string_view text);
  bool operator==(const LinkName&) const = default;
};

// What all connections of one process share. Any thread may read it.
class TlsContext {
 public:
  // kInvalidArgument for a job id that is no name.
  [[nodiscard]] static core::Result<std::shared_ptr<const TlsContext>> make(
      std::string job, core::NodeId self, std::shared_ptr<const JobSecret> secret);
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;
  ~TlsContext();

 private:
  friend class TlsSession;
  TlsContext(std::string job, core::NodeId self, std::shared_ptr<const JobSecret> secret)
      : job_(std::move(job)), self_(self), secret_(std::move(secret)) {}
  [[nodiscard]] core::Status set_up();

  const std::string job_;
  const core::NodeId self_;
  const std::shared_ptr<const JobSecret> secret_;
  SSL_CTX* context_ = nullptr;
  bio_method_st* socket_method_ = nullptr;
};

// One connection. Never blocks, never raises SIGPIPE. A failure is final.
class TlsSession {
 public:
  enum class Want { kNothing, kRead, kWrite };  // what the socket must become before it goes on
  struct Progress {
    std::size_t bytes = 0;  // 0: wait for `want`
    Want want = Want::kNothing;
  };
  // Bytes that an unknown peer may send before it has proved itself.
  static constexpr std::size_t kMostHandshakeBytes = 16 << 10;

  // `fd` is a connected stream socket, which the caller keeps open as long as this lives.
  [[nodiscard]] static core::Result<std::unique_ptr<TlsSession>> client(
      std::shared_ptr<const TlsContext> context, int fd, core::NodeId server);
  [[nodiscard]] static core::Result<std::unique_ptr<TlsSession>> server(
      std::shared_ptr<const TlsContext> context, int fd);
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;
  ~TlsSession();

  // kNothing: both sides have proved themselves. kInvalidArgument: the peer did not, and why; kPeerLost: it
  // went away.
  [[nodiscard]] core::Result<Want> handshake();
  // Up to bytes.size() of what the peer sent, at most one record of 16 KiB. kPeerLost: it has closed.
  [[nodiscard]] core::Result<Progress> read(std::span<std::byte> bytes);
  // Takes a front of `bytes`. When it took nothing, the next call begins with the same bytes.
  [[nodiscard]] core::Result<Progress> write(std::span<const std::byte> bytes);
  // Tells the peer that no more will come; gets lost if the socket takes nothing now.
  void say_end();

  // The server's side: the peer has shown that it knows the secret, or replays somebody who did. The
  // handshake still goes on.
  [[nodiscard]] bool proved() const;
  // The other's node id; meaningful after the handshake.
  [[nodiscard]] core::NodeId peer() const { return peer_; }

 private:
  friend class TlsContext;
  struct Callbacks;
  enum class Failure { kNone, kClosed, kSystem, kTooMuch };
  TlsSession(std::shared_ptr<const TlsContext> context, int fd) : context_(std::move(context)), fd_(fd) {}
  [[nodiscard]] static core::Result<std::unique_ptr<TlsSession>> make(
      std::shared_ptr<const TlsContext> context, int fd);
  [[nodiscard]] core::Result<Want> want(int returned, std::string_view what);
  [[nodiscard]] core::Status failure(std::string_view what) const;
  void failed(BIO* bio, int retry);
  [[nodiscard]] ssl_session_st* make_key(const std::string& identity) const;

  const std::shared_ptr<const TlsContext> context_;
  const int fd_;
  SSL* ssl_ = nullptr;
  core::NodeId peer_ = 0;
  std::string identity_;  // the client's
  std::size_t received_ = 0;
  bool done_ = false;
  Failure failure_ = Failure::kNone;
  int errno_ = 0;
};

}  // namespace regroup::launcher
