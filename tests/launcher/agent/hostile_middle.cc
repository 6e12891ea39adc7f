// An agent that has the job's secret and others below it in the tree, and means harm: it stands
// between the real agent of its host, whose parent it plays, and the controller, passes on what
// both say and, once STATE has come, says WHAT beside. usage: hostile_middle STATE WHAT RESULT, and
// what an agent is called with.
//   STATE  heard (the agent below has said something), round (a Revoke)
//   WHAT   the rows of kAttacks
//   RESULT a file: what became of the link to the controller, "closed", or "open" three seconds
//   later, and after sixty where it should be closed
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "launcher/agent/link.h"
#include "launcher/agent/tree.h"
#include "launcher/agent/wire.h"
#include "launcher/transport/secure_listener.h"
#include "launcher/transport/tcp.h"

namespace regroup::agent {
namespace {

constexpr std::chrono::seconds kFirst{20}, kOpen{3}, kClosed{60};

// How it was called.
struct Call {
  std::string_view state, what;
  std::string result, regroup, job;
  proto::NodeId self = 0;
  std::string parent, endpoints, build;
};

class Middle {
 public:
  Middle(Call call, std::shared_ptr<const transport::JobSecret> secret)
      : call_(std::move(call)), secret_(std::move(secret)), timer_(loop_) {}

  int run() {
    up_ = connect(call_.self, {[this](const Message& message) { from_above(message); },
                               [this](const base::Status&) { end("closed"); }});
    if (!up_ || !listen() || !start_agent()) return 1;
    loop_.run();
    return 0;
  }

  // Functions for the attacks.
  void say(const Message& message) { up_->send(message); }
  void say_for(proto::NodeId node, const Message& message, std::uint64_t number) {
    say(Relayed{{node}, encode(message), false, {number}});
  }
  void come_as_child() {
    false_child_ = connect(child, {[](const Message&) {}, [](const base::Status&) {}});
    if (false_child_) false_child_->send(Ack{0, Ack::Action::kReparent});
  }
  proto::NodeId child = 0;   // that said something last
  std::uint64_t number = 0;  // of that

 private:
  std::unique_ptr<Link> connect(proto::NodeId as, Link::Handlers handlers) {
    auto context = transport::TlsContext::make(call_.job, as, secret_);
    auto endpoints = transport::parse_endpoints(call_.endpoints);
    if (!context.ok() || !endpoints.ok()) return nullptr;
    std::unique_ptr<Link> link;
    bool answered = false;
    transport::dial(loop_, *endpoints, kFirst, [&](base::Result<base::Fd> socket) {
      answered = true;
      if (!socket.ok()) return;
      auto channel = transport::SecureChannel::client(loop_, *context, std::move(*socket),
                                                      kController, Link::limits());
      if (!channel.ok()) return;
      (*channel)->start({.message = {}, .closed = [](const base::Status&) {}});
      link = std::make_unique<Link>(*channel, std::move(handlers));
    });
    while (!answered && loop_.run_one_for(kFirst) > 0) {
    }
    return link;
  }
  bool listen() {
    auto context = transport::TlsContext::make(call_.job, kController, secret_);
    if (!context.ok()) return false;
    transport::SecureListenerLimits limits;
    limits.channel = Link::limits();
    listener_ = std::make_unique<transport::SecureListener>(
        loop_, *context,
        [this](std::shared_ptr<transport::SecureChannel> channel) {
          down_ = std::make_unique<Link>(
              std::move(channel),
              Link::Handlers{[this](const Message& message) { from_below(message); },
                             [this](const base::Status&) { loop_.stop(); }});
        },
        limits);
    return listener_->start(0).ok();
  }
  bool start_agent() {
    std::array<int, 2> input{};
    if (::pipe(input.data()) != 0) return false;
    const std::string here = "127.0.0.1:" + std::to_string(listener_->port());
    const std::string self = std::to_string(call_.self);
    if (::fork() == 0) {
      ::dup2(input[0], STDIN_FILENO);
      ::close(input[1]);
      ::execl(call_.regroup.c_str(), call_.regroup.c_str(), "--node-agent", call_.job.c_str(),
              self.c_str(), call_.parent.c_str(), here.c_str(), call_.build.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(input[0]);
    return secret_->write(input[1]).ok();  // which stays open as long as this process lives
  }

  void from_above(const Message& message) {
    if (down_) down_->send(message);
    const auto* said = std::get_if<Membership>(&message);
    if (said != nullptr && std::holds_alternative<proto::Revoke>(said->message.body))
      attack("round");
  }
  void from_below(const Message& message) {
    up_->send(message);
    const auto look = [this](const Relayed& relayed) {
      if (relayed.numbers.size() == 1 && relayed.numbers[0] > 0)
        child = relayed.nodes[0], number = relayed.numbers[0];
    };
    if (const auto* relayed = std::get_if<Relayed>(&message)) look(*relayed);
    if (const auto* gathered = std::get_if<Gathered>(&message))
      for (const Relayed& relayed : gathered->messages) look(relayed);
    if (child != 0) attack("heard");
  }
  void attack(std::string_view state);
  void end(const char* answer) {
    if (attacked_) tell(answer);
    loop_.stop();
  }
  void tell(const char* answer) {
    if (std::exchange(told_, true)) return;
    std::ofstream(call_.result + ".new") << answer;
    std::rename((call_.result + ".new").c_str(), call_.result.c_str());
  }

  const Call call_;
  const std::shared_ptr<const transport::JobSecret> secret_;
  boost::asio::io_context loop_;
  boost::asio::steady_timer timer_;
  std::unique_ptr<transport::SecureListener> listener_;
  std::unique_ptr<Link> up_, down_, false_child_;
  bool attacked_ = false, told_ = false;
};

constexpr std::uint64_t kLast = std::numeric_limits<std::uint64_t>::max();

Message membership(proto::Body body) { return Membership{{1, std::move(body), 0}}; }

constexpr struct Attack {
  std::string_view name;
  bool closes;  // the controller is to close the link
  void (*say)(Middle& m);
} kAttacks[] = {
    // As of hostile_agent.cc, here by one that may speak for some.
    {"others", true, [](Middle& m) { m.say_for(1, UserMessage{"of another"}, 1); }},
    {"both", true,
     [](Middle& m) {
       m.say(Relayed{{m.child, 1}, encode(UserMessage{"of two"}), false, {m.number + 1, 1}});
     }},
    {"gathered", true,
     [](Middle& m) {
       m.say(Gathered{{{{1}, encode(membership(proto::Report{1, {}})), true, {1}}}});
     }},
    {"news", true,
     [](Middle& m) {
       m.say(ChildEvent{ChildEvent::Kind::kLost, 1, "gone", base::Code::kPeerLost});
     }},
    {"nodes", true,
     [](Middle& m) {
       m.say(membership(proto::NodeLost{1, "gone"}));
     }},
    {"agents", true, [](Middle& m) { m.say(membership(proto::Revoke{1'000'000})); }},
    {"orders", false,
     [](Middle& m) {
       m.say(Setup{});
       m.say(EndAgent{m.child});
       m.say(AddRoute{m.child, {1, 2, 3}});
     }},
    // About its own child, which lives and sends.
    {"lost", false,
     [](Middle& m) {
       m.say(ChildEvent{ChildEvent::Kind::kLost, m.child, "host node3: gone\x1b[2J",
                        base::Code::kPeerLost});
     }},
    {"silent", false,
     [](Middle& m) {
       for (int i = 0; i < 100; ++i) m.say(ChildEvent{ChildEvent::Kind::kSilent, m.child, ""});
       for (int i = 0; i < 100; ++i)
         m.say(ChildEvent{ChildEvent::Kind::kConnected, m.child, "10.0.0.99"});
     }},
    {"words", false,
     [](Middle& m) {
       m.say_for(m.child, membership(proto::NodeLost{1, "gone"}), m.number + 1);
     }},
    // Numbers that it has had or will not have for long, and that it had heard what will never be
    // said.
    {"numbers", false,
     [](Middle& m) {
       for (const std::uint64_t number : {std::uint64_t{1}, m.number, m.number + 2, kLast})
         m.say_for(m.child, UserMessage{"out of turn"}, number);
       m.say_for(m.child, Ack{kLast}, 0);
     }},
    {"adopt", true,
     [](Middle& m) {
       m.say_for(m.child, Ack{0, Ack::Action::kReparent}, 0);
       m.say(Ack{0, Ack::Action::kReparent});
     }},
    {"child", false, [](Middle& m) { m.come_as_child(); }},
};

void Middle::attack(std::string_view state) {
  if (state != call_.state || child == 0 || std::exchange(attacked_, true)) return;
  const auto* const one = std::ranges::find(kAttacks, call_.what, &Attack::name);
  if (one == std::end(kAttacks)) return end("unknown");
  one->say(*this);
  timer_.expires_after(one->closes ? kClosed : kOpen);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) tell("open");
  });
}

}  // namespace
}  // namespace regroup::agent

int main(int argc, char** argv) {
  using namespace regroup;
  if (argc != 11) return 2;
  const auto secret = transport::JobSecret::read(STDIN_FILENO, agent::kFirst);
  if (!secret.ok()) return 1;
  agent::Call call{argv[1], argv[2], argv[3], argv[4], argv[6], 0, argv[8], argv[9], argv[10]};
  call.self = static_cast<proto::NodeId>(std::stoul(argv[7]));
  return agent::Middle(std::move(call), *secret).run();
}
