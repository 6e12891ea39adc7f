// The connection of a malicious agent: the caller decides what is written and read.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "launcher/agent/wire.h"
#include "launcher/transport/tls_session.h"
#include "proto/wire.h"

namespace regroup::agent {

using Bytes = std::vector<std::byte>;
using Clock = std::chrono::steady_clock;

inline constexpr std::chrono::seconds kTimeout{60}, kAnswer{60}, kFirst{20};
inline constexpr std::size_t kPart = 512 << 10;

// One link, without any of the limits of SecureChannel.
class Wire {
 public:
  Wire(std::unique_ptr<transport::TlsSession> tls, base::Fd socket)
      : socket_(std::move(socket)), tls_(std::move(tls)) {}

  bool shake_hands() {
    for (const auto end = Clock::now() + kFirst; Clock::now() < end;) {
      const auto want = tls_->handshake();
      if (!want.ok()) return false;
      if (*want == transport::TlsSession::Want::kNothing) return true;
      wait(*want);
    }
    return false;
  }
  void write(std::span<const std::byte> bytes) {
    for (const auto end = Clock::now() + kAnswer; open_ && !bytes.empty() && Clock::now() < end;) {
      const auto took = tls_->write(bytes);
      open_ = took.ok();
      if (open_ && took->bytes == 0) wait(took->want);
      if (open_) bytes = bytes.subspan(took->bytes);
    }
  }
  void frame(std::span<const std::byte> payload, std::uint32_t length) {
    Bytes bytes(sizeof length);
    std::memcpy(bytes.data(), &length, sizeof length);
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    write(bytes);
  }
  void part(char flag, std::span<const std::byte> rest) {
    Bytes payload(1, static_cast<std::byte>(flag));
    payload.insert(payload.end(), rest.begin(), rest.end());
    frame(payload, static_cast<std::uint32_t>(payload.size()));
  }
  void say(const Message& message) {
    const Bytes bytes = encode(message);
    std::span<const std::byte> rest(bytes);
    for (; rest.size() > kPart; rest = rest.subspan(kPart)) part(1, rest.first(kPart));
    part(0, rest);
  }

  // What has come by then, at most one.
  std::optional<Message> hear(Clock::time_point until) {
    while (open_) {
      const auto payload = frames_.next_payload();
      if (payload.ok() && payload->has_value()) {
        const auto bytes = **payload;
        partial_.insert(partial_.end(), bytes.begin() + 1, bytes.end());
        if (bytes[0] != std::byte{0}) continue;
        auto message = decode(std::exchange(partial_, {}));
        if (!message.ok()) continue;
        if (const auto* setup = std::get_if<Setup>(&*message)) host = setup->host;
        if (const auto* order = std::get_if<Membership>(&*message)) learn(order->message.body);
        if (const auto* services = std::get_if<Services>(&*message)) learn(services->message);
        taken = taken || std::holds_alternative<WindowUpdate>(*message);
        return std::move(*message);
      }
      if (Clock::now() >= until) return std::nullopt;
      read();
    }
    return std::nullopt;
  }
  [[nodiscard]] bool open() const { return open_; }

  std::string job, build;            // its id, and what the launcher is
  std::uint32_t host = 1;            // the number there of this one
  std::set<proto::MemberId> own;     // members that it was to start
  proto::Generation generation = 0;  // newest that it was told of
  std::vector<Bytes> gathered;       // what all have brought, of each fence that they have come to
  bool taken = false;                // the controller has taken output of it

 private:
  void learn(const pmi::Message& message) {
    if (const auto* all = std::get_if<pmi::Gathered>(&message)) gathered.push_back(all->data);
  }
  void learn(const proto::Body& body) {
    if (const auto* start = std::get_if<proto::Start>(&body)) own.insert(start->member);
    if (const auto* revoke = std::get_if<proto::Revoke>(&body)) generation = revoke->generation;
    if (const auto* announce = std::get_if<proto::Announce>(&body))
      generation = announce->world->generation;
  }
  void wait(transport::TlsSession::Want want) const {
    pollfd one{socket_.get(), short(want == transport::TlsSession::Want::kWrite ? POLLOUT : POLLIN),
               0};
    ::poll(&one, 1, 100);
  }
  void read() {
    Bytes bytes(16 << 10);
    const auto got = tls_->read(bytes);
    open_ = got.ok();
    if (!open_) return;
    if (got->bytes == 0) return wait(got->want);
    frames_.append(std::span(bytes).first(got->bytes));
  }

  const base::Fd socket_;
  const std::unique_ptr<transport::TlsSession> tls_;
  proto::FrameReader frames_;
  Bytes partial_;
  bool open_ = true;
};

}  // namespace regroup::agent
