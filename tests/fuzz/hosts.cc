// The controller of a job and an agent that has its secret and means harm, with two hosts below it
// in the tree: the frames of its link, and what is in them, are the input's. Whatever it says,
// another agent's host stays as it is, and what the user is told is one line each.
#include "launcher/agent/hosts.h"

#include <fcntl.h>

#include <boost/asio/steady_timer.hpp>
#include <cstdint>

#include "launcher/agent/fake_spawner.h"
#include "launcher/agent/heartbeat_monitor.h"
#include "launcher/agent/wire.h"
#include "launcher/transport/tls_session.h"
#include "tests/fuzz/choices.h"
#include "tests/fuzz/require.h"
#include "tests/launcher/transport/net_test.h"

using namespace regroup;
using namespace regroup::agent;
using namespace regroup::spec;
using regroup::fuzz::Choices;
using regroup::fuzz::require;
using transport::SecureChannel;

namespace {

constexpr proto::NodeId kHostile = 1, kHonest = 2,
                        kNodes = 6;  // 3 and 4 are below 1; there is no 5
constexpr std::size_t kOfHostile = 0, kOfHonest = 1, kHosts = 4;

bool one_line(std::string_view text) {
  return std::ranges::none_of(
      text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

class Job {
 public:
  explicit Job(Choices choices) : choices_(choices) {
    HostsOptions options;
    options.job = "job-1";
    options.build = "1";
    for (const char* name : {"node1", "node2", "node3", "node4"})
      options.hosts.push_back({.name = name, .access = access()});
    options.program = "/bin/regroup";
    options.limit = std::chrono::hours(1);
    options.radix = 2;
    options.verbose = true;
    hosts_ = Hosts::make(loop_, std::move(options), [](const std::string& said) {
               require(one_line(said));
             }).value();
    elastic_ = choices_.below(2) == 1;
    if (elastic_) hosts_->set_elastic(events());
  }

  void run() {
    require(happens([this] { return spawner_->is_up(kHostile) && spawner_->is_up(kHonest); }));
    hostile_ = connect(kHostile);
    honest_ = connect(kHonest);
    say(*honest_, Hello{"1", "node2", 1, 0});
    beat();
    require(happens([this] { return hosts_->is_up(kOfHonest); }));
    if (choices_.below(4) != 0) come_up();
    if (choices_.below(4) != 0) serve();
    while (!choices_.empty() && (hostile_->open() || !came_.empty())) step();
    settle();
    require(hosts_->is_up(kOfHonest) && honest_->open());
    require(hosts_->facts(kOfHonest).version == "1" && hosts_->facts(kOfHonest).port == 0);
    for (std::size_t i = 0; i < kHosts; ++i) require(one_line(hosts_->address(i)));
  }

 private:
  HostAccess access() {
    HostAccess access;
    access.before = {"fake"};
    access.make = [this](std::shared_ptr<const transport::JobSecret> secret,
                         agent::SpawnEvents events) {
      secret_ = std::move(secret);
      auto made = std::make_unique<agent::FakeSpawner>(loop_, std::move(events));
      spawner_ = made.get();
      return made;
    };
    return access;
  }

  HostsElastic events() {
    HostsElastic events;
    events.membership = [](proto::NodeId node, const proto::Message&) { require(node != kHonest); };
    events.silent = [](proto::NodeId node, bool) { require(node != kHonest); };
    events.noticed = [](std::size_t index, const HostNotice&) { require(index != kOfHonest); };
    events.came = [](std::size_t) {};
    events.dismissed = [](std::size_t index) { require(index != kOfHonest); };
    return events;
  }

  // As a real agent does: it is heard, however slow this machine is.
  void beat() {
    heartbeat_timer_.expires_after(kHeartbeatInterval / 2);
    heartbeat_timer_.async_wait([this](const boost::system::error_code& error) {
      if (error || !honest_->open()) return;
      say(*honest_, Heartbeat{});
      beat();
    });
  }

  template <class Condition>
  bool happens(Condition condition) {
    return transport::run_until(loop_, condition);
  }
  // All that was sent has been taken: a loopback carries it at once.
  void settle() {
    for (int idle = 0; idle < 3; ++idle) {
      loop_.restart();
      if (loop_.poll() > 0) idle = 0;
    }
  }

  std::shared_ptr<SecureChannel> connect(proto::NodeId self) {
    const std::string& endpoints = spawner_->orders().at(0).arguments.at(4);
    const auto port =
        static_cast<std::uint16_t>(std::stoul(endpoints.substr(endpoints.rfind(':') + 1)));
    base::Fd socket = transport::connect_to(port);
    const linger at_once{1, 0};  // no port waits for what may still come
    require(::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
    auto channel = SecureChannel::client(loop_, transport::node(secret_, self), std::move(socket),
                                         kController, Link::limits())
                       .value();
    bool opened = false;
    channel->start({.message = {},
                    .closed = [](const base::Status&) {},
                    .opened = [&opened] { opened = true; },
                    .payload = [](std::span<const std::byte>) { return base::Status(); }});
    require(happens([&opened] { return opened; }));
    channel->set_handlers({.message = {},
                           .closed = [](const base::Status&) {},
                           .payload = [](std::span<const std::byte>) { return base::Status(); }});
    return channel;
  }

  static void say(SecureChannel& channel, const Message& message) {
    part(channel, 0, encode(message));
  }
  static void part(SecureChannel& channel, std::uint8_t flag, std::span<const std::byte> bytes) {
    std::vector<std::byte> payload(1, std::byte{flag});
    payload.insert(payload.end(), bytes.begin(), bytes.end());
    channel.send_payload(payload);
  }

  void come_up() {
    say(*hostile_, Hello{"1", "node1", 1, 0});
    for (const proto::NodeId below : {3U, 4U}) {
      say(*hostile_, ChildEvent{ChildEvent::Kind::kConnected, below, "10.0.0.2"});
      say(*hostile_, Relayed{{below}, encode(Hello{"1", "below", 1, 0}), false, {1}});
    }
    require(happens(
        [this] { return hosts_->is_up(kOfHostile) && hosts_->is_up(2) && hosts_->is_up(3); }));
  }

  void serve() {
    agent::NodeEvents events;
    events.started = [](std::uint32_t, const base::Status& status) {
      require(one_line(status.message()));
    };
    events.exited = [](const process::MemberExit& exit) { require(exit.host != "node2"); };
    events.mpi = [](std::uint32_t host, const pmi::Message&) { require(host != kOfHonest + 1); };
    events.said = [](const std::string& said) { require(one_line(said)); };
    events.used = [](const std::string& host, const std::string&, const auto&) {
      require(host != "node2");
    };
    hosts_->serve(
        events,
        [](std::size_t index, const base::Status& why) {
          require(index != kOfHonest && one_line(why.message()) && !why.message().empty());
        },
        out_, out_);
    for (std::size_t i = 0; i < kHosts; ++i) {
      if (!hosts_->is_up(i)) continue;
      if (elastic_) {
        Setup setup;
        setup.elastic = ElasticSetup{};
        hosts_->set_up(i, setup, {});
      } else {
        agent::SpaceOrder order;
        order.space.space = 1;
        order.members.push_back({.place = {.member = static_cast<proto::MemberId>(i), .space = 1}});
        hosts_->node(i).start(std::move(order));
      }
    }
  }

  Message word() {
    switch (choices_.below(10)) {
      case 0:
        return Ack{choices_.number(), static_cast<Ack::Action>(choices_.below(3))};
      case 1:
        return ChildEvent{static_cast<ChildEvent::Kind>(choices_.below(4)), choices_.below(kNodes),
                          "a\nb\x1b[2J"};
      case 2:
        return ChildEvent{ChildEvent::Kind::kLost, choices_.below(kNodes), "a\nb",
                          base::Code::kPeerLost};
      case 3:
        return Exited{{.member = choices_.below(kNodes)}};
      case 4:
        return SpaceStarted{choices_.below(3), {base::Code::kNotFound, "no\nprogram"}};
      case 5:
        return StreamData{static_cast<std::uint8_t>(choices_.below(3)), choices_.below(2) == 1, {}};
      case 6:
        return Membership{{1, proto::MemberLost{.member = choices_.below(kNodes), .reaped = true}}};
      case 7:
        return Done{};
      case 8:
        return UserMessage{
            "a\nb\xc2\x9b"
            "2J"};
      default: {
        auto message = decode(std::as_bytes(choices_.some()));
        return message.ok() ? std::move(*message) : Heartbeat{};
      }
    }
  }

  Relayed envelope() {
    Relayed relayed;
    for (std::uint32_t n = choices_.below(8) == 0 ? 1 + choices_.below(3) : 1; n > 0; --n) {
      const proto::NodeId node = choices_.below(kNodes);
      relayed.nodes.push_back(node);
      const std::uint32_t number = choices_.below(8);
      if (number != 7)
        relayed.numbers.resize(relayed.nodes.size(), number < 6 ? ++numbers_[node] : number - 6);
    }
    if (relayed.numbers.size() != relayed.nodes.size()) relayed.numbers.clear();
    const auto bytes =
        std::as_bytes(choices_.below(8) == 0 ? choices_.some() : std::span<const std::uint8_t>());
    relayed.message = bytes.empty() ? encode(word()) : std::vector(bytes.begin(), bytes.end());
    relayed.answered = choices_.below(2) == 1;
    return relayed;
  }

  // It takes the place of one below it, whose number it knows, on a link of its own.
  void come_as(proto::NodeId below) {
    if (came_.contains(below)) return;
    const auto link = came_[below] = connect(below);
    say(*link, Ack{choices_.below(4), static_cast<Ack::Action>(choices_.below(3))});
    if (choices_.below(2) == 0) say(*link, envelope());
  }

  void step() {
    switch (choices_.below(7)) {
      case 0:
        part(*hostile_, static_cast<std::uint8_t>(choices_.below(4)),
             std::as_bytes(choices_.some()));
        break;
      case 1:
        say(*hostile_, word());
        break;
      case 2: {
        Gathered all;
        for (std::uint32_t n = choices_.below(5); n > 0; --n) all.messages.push_back(envelope());
        say(*hostile_, all);
        break;
      }
      case 6:
        come_as(3 + choices_.below(2));
        break;
      default:
        say(*hostile_, envelope());
    }
    if (choices_.below(2) == 0) settle();
  }

  Choices choices_;
  boost::asio::io_context loop_;
  base::Fd null_{::open("/dev/null", O_WRONLY | O_CLOEXEC)};
  process::Sink out_{loop_, null_.get()};
  bool elastic_ = false;
  std::shared_ptr<const transport::JobSecret> secret_;
  agent::FakeSpawner* spawner_ = nullptr;
  std::unique_ptr<Hosts> hosts_;
  std::shared_ptr<SecureChannel> hostile_, honest_;
  boost::asio::steady_timer heartbeat_timer_{loop_};  // of the honest one
  std::map<proto::NodeId, std::shared_ptr<SecureChannel>> came_;
  std::map<proto::NodeId, std::uint64_t> numbers_{{3, 1}, {4, 1}};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Job(Choices({data, std::min<std::size_t>(size, 2048)})).run();
  return 0;
}
