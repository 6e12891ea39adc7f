// OpenSSL's socket BIO calls write(), which raises SIGPIPE, and reads without a limit; the BIO here
// does neither.
#include "launcher/transport/tls_session.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "launcher/transport/openssl.h"

namespace regroup::transport {
namespace {

constexpr std::string_view kPrefix = "regroup1 ";
constexpr std::string_view kNameLetters =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
constexpr std::size_t kLongestName = 64;
constexpr std::size_t kLongestIdentity = kPrefix.size() + kLongestName + 2 * 11;
constexpr std::array<unsigned char, 2> kCipher{0x13, 0x02};  // TLS_AES_256_GCM_SHA384
constexpr std::size_t kReadAhead = 64 << 10;

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kLongestName &&
         text.find_first_not_of(kNameLetters) == std::string_view::npos;
}

// Takes a word up to the next space off the front.
std::string_view take_word(std::string_view& text) {
  const std::string_view word = text.substr(0, text.find(' '));
  text.remove_prefix(std::min(word.size() + 1, text.size()));
  return word;
}

std::string_view reason_of_openssl() {
  const char* reason = openssl().ERR_reason_error_string(openssl().ERR_peek_error());
  return reason != nullptr ? reason : "no reason given";
}

}  // namespace

std::string LinkName::to_string() const {
  return fmt::format("{}{} {} {}", kPrefix, job, from, to);
}

std::optional<LinkName> LinkName::parse(std::string_view text) {
  if (text.size() > kLongestIdentity || !text.starts_with(kPrefix)) return std::nullopt;
  std::string_view rest = text.substr(kPrefix.size());
  LinkName name;
  name.job = take_word(rest);
  for (proto::NodeId* node : {&name.from, &name.to}) {
    const std::string_view word = take_word(rest);
    if (std::from_chars(word.data(), word.data() + word.size(), *node).ec != std::errc())
      return std::nullopt;
  }
  // Only the canonical spelling is accepted.
  if (!is_name(name.job) || name.to_string() != text) return std::nullopt;
  return name;
}

// Callbacks of OpenSSL.
struct TlsSession::Callbacks {
  static int read(BIO* bio, char* bytes, int size) {
    auto* self = static_cast<TlsSession*>(openssl().BIO_get_data(bio));
    openssl().BIO_clear_retry_flags(bio);
    if (!self->done_ && self->received_ > kMostHandshakeBytes) {
      self->failure_ = Failure::kTooMuch;
      return -1;
    }
    const ssize_t count = ::recv(self->fd_, bytes, static_cast<std::size_t>(size), MSG_DONTWAIT);
    if (count > 0) self->received_ += static_cast<std::size_t>(count);
    if (count == 0) self->failure_ = Failure::kClosed;
    if (count < 0) self->failed(bio, BIO_FLAGS_READ);
    return static_cast<int>(count);
  }

  static int write(BIO* bio, const char* bytes, int size) {
    auto* self = static_cast<TlsSession*>(openssl().BIO_get_data(bio));
    openssl().BIO_clear_retry_flags(bio);
    const ssize_t count =
        ::send(self->fd_, bytes, static_cast<std::size_t>(size), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0) self->failed(bio, BIO_FLAGS_WRITE);
    return static_cast<int>(count);
  }

  static long control(BIO* bio, int command, long, void*) {
    if (command == BIO_CTRL_FLUSH) return 1;
    if (command != BIO_CTRL_EOF) return 0;
    return static_cast<TlsSession*>(openssl().BIO_get_data(bio))->failure_ == Failure::kClosed ? 1
                                                                                               : 0;
  }

  static int offer_key(SSL* ssl, const EVP_MD*, const unsigned char** identity, std::size_t* size,
                       SSL_SESSION** key) {
    auto* self = static_cast<TlsSession*>(openssl().SSL_get_ex_data(ssl, 0));
    *identity = reinterpret_cast<const unsigned char*>(self->identity_.data());
    *size = self->identity_.size();
    *key = self->make_key(self->identity_);
    return *key != nullptr ? 1 : 0;
  }

  // Without a key the handshake continues as if none was offered, and fails since there is no
  // certificate.
  static int find_key(SSL* ssl, const unsigned char* identity, std::size_t size,
                      SSL_SESSION** key) {
    auto* self = static_cast<TlsSession*>(openssl().SSL_get_ex_data(ssl, 0));
    *key = nullptr;
    const auto name = LinkName::parse({reinterpret_cast<const char*>(identity), size});
    if (!name || name->job != self->context_->job_ || name->to != self->context_->self_) return 1;
    self->peer_ = name->from;
    *key = self->make_key(name->to_string());
    return *key != nullptr ? 1 : 0;
  }
};

base::Result<std::shared_ptr<const TlsContext>> TlsContext::make(
    std::string job, proto::NodeId self, std::shared_ptr<const JobSecret> secret) {
  if (!is_name(job)) {
    return base::invalid_argument(
        fmt::format("job id of {} bytes: expected 1 to {} letters, digits, '.', '_' or '-'",
                    job.size(), kLongestName));
  }
  REGROUP_RETURN_IF_ERROR(load_openssl());
  std::shared_ptr<TlsContext> context(new TlsContext(std::move(job), self, std::move(secret)));
  REGROUP_RETURN_IF_ERROR(context->set_up());
  return std::shared_ptr<const TlsContext>(std::move(context));
}

base::Status TlsContext::set_up() {
  openssl().ERR_clear_error();
  context_ = openssl().SSL_CTX_new(openssl().TLS_method());
  // A BIO type of its own would serve BIO_find_type() only; BIO_get_new_index() would use up a
  // number.
  socket_method_ = openssl().BIO_meth_new(BIO_TYPE_SOURCE_SINK | 126, "regroup socket");
  if (context_ == nullptr || socket_method_ == nullptr ||
      openssl().BIO_meth_set_read(socket_method_, TlsSession::Callbacks::read) != 1 ||
      openssl().BIO_meth_set_write(socket_method_, TlsSession::Callbacks::write) != 1 ||
      openssl().BIO_meth_set_ctrl(socket_method_, TlsSession::Callbacks::control) != 1 ||
      openssl().SSL_CTX_set_min_proto_version(context_, TLS1_3_VERSION) != 1 ||
      openssl().SSL_CTX_set_max_proto_version(context_, TLS1_3_VERSION) != 1 ||
      openssl().SSL_CTX_set_ciphersuites(context_, "TLS_AES_256_GCM_SHA384") != 1 ||
      openssl().SSL_CTX_set1_groups_list(context_, "X25519:P-256") != 1 ||
      openssl().SSL_CTX_set_num_tickets(context_, 0) != 1 ||
      openssl().SSL_CTX_set_max_early_data(context_, 0) != 1) {
    return base::internal_error(
        fmt::format("OpenSSL refuses TLS 1.3 with a PSK: {}", reason_of_openssl()));
  }
  openssl().SSL_CTX_set_session_cache_mode(context_, SSL_SESS_CACHE_OFF);
  // A server that presents a certificate instead of the PSK is refused: no certificate is trusted.
  openssl().SSL_CTX_set_verify(context_, SSL_VERIFY_PEER, nullptr);
  openssl().SSL_CTX_set_mode(context_, SSL_MODE_ENABLE_PARTIAL_WRITE |
                                           SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                           SSL_MODE_RELEASE_BUFFERS);
  openssl().SSL_CTX_set_read_ahead(context_, 1);
  openssl().SSL_CTX_set_default_read_buffer_len(context_, kReadAhead);
  openssl().SSL_CTX_set_psk_use_session_callback(context_, TlsSession::Callbacks::offer_key);
  openssl().SSL_CTX_set_psk_find_session_callback(context_, TlsSession::Callbacks::find_key);
  return {};
}

TlsContext::~TlsContext() {
  openssl().SSL_CTX_free(context_);
  openssl().BIO_meth_free(socket_method_);
}

base::Result<std::unique_ptr<TlsSession>> TlsSession::make(
    std::shared_ptr<const TlsContext> context, int fd) {
  openssl().ERR_clear_error();
  std::unique_ptr<TlsSession> session(new TlsSession(std::move(context), fd));
  session->ssl_ = openssl().SSL_new(session->context_->context_);
  BIO* bio =
      session->ssl_ != nullptr ? openssl().BIO_new(session->context_->socket_method_) : nullptr;
  if (bio == nullptr) {
    return base::resource_exhausted(
        fmt::format("SSL_new(connection {}): {}", fd, reason_of_openssl()));
  }
  openssl().BIO_set_data(bio, session.get());
  openssl().BIO_set_init(bio, 1);
  openssl().SSL_set_bio(session->ssl_, bio, bio);
  if (openssl().SSL_set_ex_data(session->ssl_, 0, session.get()) != 1)
    return base::resource_exhausted("SSL_set_ex_data: no memory");
  return session;
}

base::Result<std::unique_ptr<TlsSession>> TlsSession::client(
    std::shared_ptr<const TlsContext> context, int fd, proto::NodeId server) {
  auto session = make(std::move(context), fd);
  if (!session.ok()) return session;
  TlsSession& self = **session;
  self.peer_ = server;
  self.identity_ = LinkName{self.context_->job_, self.context_->self_, server}.to_string();
  openssl().SSL_set_connect_state(self.ssl_);
  return session;
}

base::Result<std::unique_ptr<TlsSession>> TlsSession::server(
    std::shared_ptr<const TlsContext> context, int fd) {
  auto session = make(std::move(context), fd);
  if (!session.ok()) return session;
  openssl().SSL_set_verify((*session)->ssl_, SSL_VERIFY_NONE,
                           nullptr);  // there is no certificate to request one with
  openssl().SSL_set_accept_state((*session)->ssl_);
  return session;
}

TlsSession::~TlsSession() { openssl().SSL_free(ssl_); }

// The secret itself never enters OpenSSL's memory: the derived key opens this connection only.
SSL_SESSION* TlsSession::make_key(const std::string& identity) const {
  std::array<std::byte, JobSecret::kBytes> key{};
  SSL_SESSION* out = openssl().SSL_SESSION_new();
  const SSL_CIPHER* cipher = openssl().SSL_CIPHER_find(ssl_, kCipher.data());
  const bool made = out != nullptr && cipher != nullptr &&
                    context_->secret_->derive(identity, key).ok() &&
                    openssl().SSL_SESSION_set1_master_key(
                        out, reinterpret_cast<const unsigned char*>(key.data()), key.size()) == 1 &&
                    openssl().SSL_SESSION_set_cipher(out, cipher) == 1 &&
                    openssl().SSL_SESSION_set_protocol_version(out, TLS1_3_VERSION) == 1;
  ::explicit_bzero(key.data(), key.size());
  if (made) return out;
  openssl().SSL_SESSION_free(out);
  return nullptr;
}

void TlsSession::failed(BIO* bio, int retry) {
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) {
    return openssl().BIO_set_flags(bio, retry | BIO_FLAGS_SHOULD_RETRY);
  }
  failure_ = Failure::kSystem;
  errno_ = errno;
}

base::Result<TlsSession::Want> TlsSession::handshake() {
  openssl().ERR_clear_error();
  const int returned = openssl().SSL_do_handshake(ssl_);
  if (returned != 1) return want(returned, "TLS handshake");
  if (openssl().SSL_session_reused(ssl_) != 1 || openssl().SSL_version(ssl_) != TLS1_3_VERSION) {
    return base::invalid_argument("TLS handshake: the peer did not use the job's key");
  }
  done_ = true;
  return Want::kNothing;
}

base::Result<TlsSession::Progress> TlsSession::read(std::span<std::byte> bytes) {
  openssl().ERR_clear_error();
  std::size_t count = 0;
  const int returned = openssl().SSL_read_ex(ssl_, bytes.data(), bytes.size(), &count);
  if (returned == 1) return Progress{count, Want::kNothing};
  REGROUP_ASSIGN_OR_RETURN(auto wanted, want(returned, "TLS read"));
  return Progress{0, wanted};
}

base::Result<TlsSession::Progress> TlsSession::write(std::span<const std::byte> bytes) {
  openssl().ERR_clear_error();
  std::size_t count = 0;
  const int returned = openssl().SSL_write_ex(ssl_, bytes.data(), bytes.size(), &count);
  if (returned == 1) return Progress{count, Want::kNothing};
  REGROUP_ASSIGN_OR_RETURN(auto wanted, want(returned, "TLS write"));
  return Progress{0, wanted};
}

void TlsSession::say_end() {
  openssl().ERR_clear_error();
  static_cast<void>(openssl().SSL_shutdown(ssl_));
}

bool TlsSession::proved() const { return openssl().SSL_session_reused(ssl_) == 1; }

base::Result<TlsSession::Want> TlsSession::want(int returned, std::string_view what) {
  switch (openssl().SSL_get_error(ssl_, returned)) {
    case SSL_ERROR_WANT_READ:
      return Want::kRead;
    case SSL_ERROR_WANT_WRITE:
      return Want::kWrite;
    case SSL_ERROR_ZERO_RETURN:
      return base::peer_lost("the peer closed the connection");
    default:
      return failure(what);
  }
}

base::Status TlsSession::failure(std::string_view what) const {
  switch (failure_) {
    case Failure::kClosed:
      return base::peer_lost("the peer closed the connection");
    case Failure::kSystem:
      return base::peer_lost(base::system_error(what, "control connection", errno_).message());
    case Failure::kTooMuch:
      return base::invalid_argument(
          fmt::format("{}: more than {} bytes before authentication", what, kMostHandshakeBytes));
    case Failure::kNone:
      break;
  }
  const base::Code code = done_ ? base::Code::kDataLoss : base::Code::kInvalidArgument;
  return {code, fmt::format("{}: {}", what, reason_of_openssl())};
}

}  // namespace regroup::transport
