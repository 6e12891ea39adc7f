// Asks an agent for a state transfer as no agent does. usage: hostile_transfer JOB FROM TO
// ENDPOINTS TRANSFER WHAT, with a secret on standard input, as an agent gets it; WHAT: the rows of
// kAttacks. It prints the answer that came within kAnswer, or kStays where none is wanted:
//   refused      it did not get in
//   told: WHY    it was sent away with this sentence
//   closed       without one
//   open         it may stay
#include <fmt/format.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdio>
#include <random>
#include <string>
#include <string_view>

#include "base/status.h"
#include "launcher/transport/secure_channel.h"
#include "launcher/transport/tcp.h"
#include "membership/catchup/transfer_messages.h"

namespace regroup::catchup {
namespace {

constexpr std::chrono::seconds kFirst{20}, kAnswer{60};
constexpr std::chrono::seconds kStays{12};  // beyond what an agent waits for a request

using transport::SecureChannel;

std::vector<std::byte> noise(std::size_t size) {
  std::mt19937 random(4711);
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

TransferRequest all_of(proto::TransferId transfer) { return {transfer, 0, 1, true}; }

constexpr struct {
  std::string_view name;
  void (*say)(SecureChannel& source, proto::TransferId transfer);
} kAttacks[] = {
    {"silent", [](SecureChannel&, proto::TransferId) {}},
    {"noise", [](SecureChannel& c, proto::TransferId) { c.send_payload(noise(4096)); }},
    {"empty", [](SecureChannel& c, proto::TransferId) { c.send_payload({}); }},
    {"cut",
     [](SecureChannel& c, proto::TransferId transfer) {
       const auto whole = encode(all_of(transfer));
       c.send_payload(std::span(whole).first(whole.size() / 2));
     }},
    // Messages that only the coordinator may send.
    {"orders",
     [](SecureChannel& c, proto::TransferId transfer) {
       c.send({1, proto::EndTransfer{transfer}});
     }},
    {"part",
     [](SecureChannel& c, proto::TransferId transfer) {
       c.send_payload(encode(TransferRequest{transfer, 2, 2, true}));
     }},
    {"parts",
     [](SecureChannel& c, proto::TransferId transfer) {
       c.send_payload(encode(TransferRequest{transfer, 0, 0xffffffff, true}));
     }},
    // Messages that only a source may send.
    {"length",
     [](SecureChannel& c, proto::TransferId) {
       c.send_payload(encode(TransferLength{1ULL << 40, 1}));
     }},
    {"chunk",
     [](SecureChannel& c, proto::TransferId) {
       c.send_payload(encode(TransferChunk{0, 0xffffffff, true, 0, noise(77)}));
     }},
    {"error",
     [](SecureChannel& c, proto::TransferId) { c.send_payload(encode(TransferError{"no more"})); }},
    {"other", [](SecureChannel& c,
                 proto::TransferId transfer) { c.send_payload(encode(all_of(transfer + 1))); }},
    {"twice",
     [](SecureChannel& c, proto::TransferId transfer) {
       c.send_payload(encode(all_of(transfer)));
       c.send_payload(encode(all_of(transfer)));
     }},
    // Takes nothing of what it asked for.
    {"deaf",
     [](SecureChannel& c, proto::TransferId transfer) {
       c.send_payload(encode(all_of(transfer)));
       c.pause();
     }},
};

struct Call {
  bool opened = false, closed = false;
  std::string told;
};

base::Fd connect(boost::asio::io_context& loop, const char* where) {
  base::Fd socket;
  auto endpoints = transport::parse_endpoints(where);
  if (!endpoints.ok()) return socket;
  transport::dial(loop, *endpoints, kFirst, [&](base::Result<base::Fd> connected) {
    if (connected.ok()) socket = std::move(*connected);
  });
  loop.run_for(kFirst);
  loop.restart();
  return socket;
}

std::string answer(char** argv) {
  const auto secret = transport::JobSecret::read(STDIN_FILENO, kFirst);
  if (!secret.ok()) return secret.status().message();
  auto context = transport::TlsContext::make(
      argv[1], static_cast<proto::NodeId>(std::stoul(argv[2])), *secret);
  if (!context.ok()) return context.status().message();
  boost::asio::io_context loop;
  base::Fd socket = connect(loop, argv[4]);
  if (!socket.valid()) return "nobody listens";
  auto channel = SecureChannel::client(loop, *context, std::move(socket),
                                       static_cast<proto::NodeId>(std::stoul(argv[3])));
  if (!channel.ok()) return channel.status().message();
  Call call;
  const auto transfer = static_cast<proto::TransferId>(std::stoul(argv[5]));
  (*channel)->start({.message = {},
                     .closed = [&](const base::Status&) { call.closed = true; },
                     .opened =
                         [&] {
                           call.opened = true;
                           for (const auto& attack : kAttacks) {
                             if (attack.name == argv[6]) attack.say(**channel, transfer);
                           }
                         },
                     .payload = [&](std::span<const std::byte> payload) -> base::Status {
                       REGROUP_ASSIGN_OR_RETURN(const auto message, decode_transfer(payload));
                       if (const auto* error = std::get_if<TransferError>(&message))
                         call.told = error->why;
                       return {};
                     }});
  const bool stays = argv[6] == std::string_view("deaf");
  const auto end = std::chrono::steady_clock::now() + (stays ? kStays : kAnswer);
  while (!call.closed && std::chrono::steady_clock::now() < end) loop.run_one_until(end);
  (*channel)->close();
  if (!call.opened) return "refused";
  if (!call.told.empty()) return "told: " + call.told;
  return call.closed ? "closed" : "open";
}

}  // namespace
}  // namespace regroup::catchup

int main(int argc, char** argv) {
  if (argc != 7) return 2;
  std::fputs(regroup::catchup::answer(argv).c_str(), stdout);
}
