// Frames of proto/wire.h on a Unix socket.
#include "launcher/cli/control_client.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <vector>

#include "base/printable.h"

namespace regroup::cli {
namespace {

constexpr base::Duration kDeadline = std::chrono::seconds(10);

}  // namespace

base::Result<proto::Body> ControlClient::ask(const proto::Body& request) {
  const std::vector<std::byte> frame = proto::encode({0, request});
  if (::send(socket_.get(), frame.data(), frame.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(frame.size())) {
    return base::system_error("send", "coordinator", errno);
  }
  const base::TimePoint deadline = clock_.now() + kDeadline;
  for (;;) {
    REGROUP_ASSIGN_OR_RETURN(auto message, reader_.next());
    if (message.has_value()) return std::move(message->body);
    REGROUP_RETURN_IF_ERROR(read_some(deadline));
  }
}

base::Status ControlClient::read_some(base::TimePoint deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - clock_.now());
  pollfd poll{socket_.get(), POLLIN, 0};
  const int ready = left.count() > 0 ? ::poll(&poll, 1, static_cast<int>(left.count())) : 0;
  if (ready < 0 && errno != EINTR) return base::system_error("poll", "coordinator", errno);
  if (ready == 0) return base::deadline_exceeded("the coordinator did not answer within 10 s");
  std::array<std::byte, 64 << 10> bytes;
  const ssize_t count = ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return {};
  if (count < 0) return base::system_error("recv", "coordinator", errno);
  if (count == 0) return base::peer_lost("the coordinator closed the connection");
  reader_.append(std::span(bytes).first(static_cast<std::size_t>(count)));
  return {};
}

base::Result<std::string> ControlClient::status() {
  REGROUP_ASSIGN_OR_RETURN(auto body, ask(proto::StatusRequest{}));
  auto* reply = std::get_if<proto::StatusReply>(&body);
  if (reply == nullptr) return base::internal_error("unexpected answer of the coordinator");
  if (!nlohmann::json::accept(reply->json))
    return base::data_loss("malformed status: expected JSON");
  return std::move(reply->json);
}

int command_failed(const std::string& message) {
  fmt::print(stderr, "regroup: {}\n", base::escaped_lines(message));
  return 1;
}

}  // namespace regroup::cli
