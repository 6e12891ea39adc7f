// An agent that has the job's secret and means harm: it behaves until STATE, says WHAT, and waits
// for the controller's answer: it ends the link, or it takes a line of output that followed WHAT,
// and leaves the link open for kSettled more. usage: hostile_agent STATE WHAT RESULT, and what an
// agent is called with.
//   STATE  linked (before Hello), hello (after it), setup, mute (as setup, without an answer
//   before),
//          start (of a member there), round (a Revoke), asked (by a new coordinator); of a job
//          without rounds: space (its members are to be started), running (it has said that they
//          were)
//   WHAT   an attack (hostile_attacks.cc)
//   RESULT a file: "closed", "open", or "never" if STATE was not reached; in RESULT.gathered how
//          many fences it was in, and the bytes that came of the first; while the folder
//          RESULT.hold has files, the link stays open
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>

#include "launcher/transport/tcp.h"
#include "launcher/transport/tls_session.h"
#include "tests/launcher/agent/hostile_attacks.h"

namespace regroup::agent {
namespace {

constexpr std::chrono::seconds kSettled{1};

bool reached(std::string_view state, const Message& message) {
  if (state == "setup" || state == "mute") return std::holds_alternative<Setup>(message);
  if (state == "space" || state == "running") return std::holds_alternative<StartSpace>(message);
  const auto* said = std::get_if<Membership>(&message);
  if (said == nullptr) return false;
  if (state == "start") return std::holds_alternative<proto::Start>(said->message.body);
  if (state == "asked") return std::holds_alternative<proto::Hello>(said->message.body);
  return state == "round" && std::holds_alternative<proto::Revoke>(said->message.body);
}

// Answers as an agent whose host cannot be looked at, and has no members.
void behave(const Message& message, Wire& wire) {
  if (std::holds_alternative<InventoryRequest>(message))
    wire.say(InventoryReply{{base::Code::kUnavailable, "nobody looks at this host"}, {}});
  const auto* said = std::get_if<Membership>(&message);
  const auto* revoke = said == nullptr ? nullptr : std::get_if<proto::Revoke>(&said->message.body);
  if (revoke != nullptr) wire.say(membership(proto::Report{revoke->generation, {}}));
}

bool come_to(std::string_view state, Wire& wire) {
  if (state == "linked") return true;
  wire.say(Hello{wire.build, "evil", 1, 4000});
  if (state == "hello") return true;
  const auto end = Clock::now() + kTimeout;
  for (auto beat = Clock::now(); wire.open() && Clock::now() < end;) {
    if (Clock::now() >= beat) {
      wire.say(Heartbeat{});
      beat += kHeartbeatInterval;
    }
    const auto message = wire.hear(beat);
    if (!message) continue;
    if (!reached(state, *message)) {
      if (state != "mute") behave(*message, wire);
      continue;
    }
    if (state == "running")
      wire.say(SpaceStarted{std::get<StartSpace>(*message).order.space.space, {}});
    return true;
  }
  return false;
}

std::unique_ptr<Wire> connect(char** argv) {
  const auto secret = transport::JobSecret::read(STDIN_FILENO, kFirst);
  if (!secret.ok()) return nullptr;
  auto context = transport::TlsContext::make(
      argv[0], static_cast<proto::NodeId>(std::stoul(argv[1])), *secret);
  auto endpoints = transport::parse_endpoints(argv[3]);
  if (!context.ok() || !endpoints.ok()) return nullptr;
  boost::asio::io_context loop;
  base::Fd socket;
  transport::dial(loop, *endpoints, kFirst, [&](base::Result<base::Fd> connected) {
    if (connected.ok()) socket = std::move(*connected);
  });
  loop.run_for(kFirst);
  if (!socket.valid()) return nullptr;
  auto tls = transport::TlsSession::client(*context, socket.get(), 0);
  if (!tls.ok()) return nullptr;
  auto wire = std::make_unique<Wire>(std::move(*tls), std::move(socket));
  wire->job = argv[0];
  wire->build = argv[4];
  if (!wire->shake_hands()) wire.reset();
  return wire;
}

bool has_come(Until what, const Wire& wire) {
  if (what == Until::kClosed) return false;
  return wire.taken && (what == Until::kTaken || !wire.gathered.empty());
}

bool is_held(const std::filesystem::path& hold) {
  std::error_code none;
  return std::filesystem::directory_iterator(hold, none) != std::filesystem::directory_iterator();
}

std::string attack(std::string_view state, std::string_view what, Wire& wire,
                   const std::filesystem::path& hold) {
  if (!come_to(state, wire)) return "never";
  const Attack* const row = find_attack(what);
  if (row == nullptr) return "unknown";
  row->say(wire);
  if (row->until != Until::kClosed) wire.say(StreamData{1, false, Bytes(1, std::byte{'\n'})});
  auto end = Clock::now() + row->at_most;
  for (bool settling = false; wire.open() && (Clock::now() < end || is_held(hold));) {
    wire.say(Heartbeat{});
    const auto heard = wire.hear(Clock::now() + kHeartbeatInterval);
    if (heard && std::holds_alternative<EndHost>(*heard))
      wire.say(Done{});  // the job was not harmed
    if (!settling && has_come(row->until, wire)) {
      settling = true;
      end = Clock::now() + kSettled;
    }
  }
  return wire.open() ? "open" : "closed";
}

}  // namespace
}  // namespace regroup::agent

int main(int argc, char** argv) {
  using namespace regroup::agent;
  if (argc != 11) return 2;
  auto wire = connect(argv + 6);  // behind STATE WHAT RESULT REGROUP --node-agent
  const std::string path = argv[3];
  const std::string result = wire ? attack(argv[1], argv[2], *wire, path + ".hold") : "never";
  if (wire && !wire->gathered.empty())
    std::ofstream(path + ".gathered")
        << wire->gathered.size() << ' ' << wire->gathered.front().size();
  std::ofstream(path + ".new") << result;
  std::rename((path + ".new").c_str(), path.c_str());
}
