// What agents below one say to it, and what comes from above for them: whatever it is, nobody
// speaks for those who are not below them, all that may be said goes up once and in its order, and
// nobody is waited for for ever.
#include "launcher/agent/router.h"

#include <cstdint>
#include <map>
#include <set>

#include "launcher/agent/wire.h"
#include "tests/fuzz/choices.h"
#include "tests/fuzz/require.h"

using namespace regroup;
using namespace regroup::agent;
using namespace regroup::spec;
using regroup::fuzz::Choices;
using regroup::fuzz::require;

namespace {

constexpr proto::NodeId kSelf = 1;
// 2 .. 6 are there at first, and 7 .. 9 are given children or unknown.
constexpr std::uint32_t kNodes = 10;
using Serial = proto::Generation;  // of what is said, by which it is known again

class RoutingAgent {
 public:
  explicit RoutingAgent(Choices choices) : choices_(choices), router_(kSelf) {
    for (const auto& [node, parent] :
         {std::pair{2U, kSelf}, {3U, kSelf}, {4U, 2U}, {5U, 2U}, {6U, 5U}})
      require(tree().add(node, parent));
  }

  void run() {
    while (!choices_.empty()) step();
    for (const proto::NodeId child : tree().children(kSelf)) went_up(router_.lose(child));
    require(sent_.empty());
  }

 private:
  struct Sent {
    proto::NodeId node = 0;
    Serial serial = 0;
  };

  Tree& tree() { return router_.tree(); }
  proto::NodeId node() { return choices_.below(kNodes); }
  proto::NodeId child() {
    const auto children = tree().children(kSelf);
    return children.empty() ? 2
                            : children[choices_.below(static_cast<std::uint32_t>(children.size()))];
  }

  void step() {
    switch (choices_.below(8)) {
      case 0:
        return ask();
      case 1:
        return went_up(router_.lose(child()));
      case 2:
        return static_cast<void>(tree().add(node(), node()));
      case 3:
        return raw();
      default:
        return hear();
    }
  }

  bool may(proto::NodeId child, const Relayed& relayed) {
    if (relayed.nodes.size() != 1) return false;
    const proto::NodeId node = relayed.nodes[0];
    if (node == child) return !relayed.numbers.empty();
    if (!tree().has(node)) return true;
    for (auto above = tree().parent(node); above; above = tree().parent(*above))
      if (*above == child) return true;
    return false;
  }

  Message word() {
    const Serial serial = ++last_;
    if (choices_.below(2) == 0) return Membership{{1, proto::Report{serial, {}}}};
    return Membership{{1, proto::MemberLost{.member = serial}}};
  }
  static Serial serial_of(const Message& message) {
    const auto* membership = std::get_if<Membership>(&message);
    if (membership == nullptr) return 0;
    if (const auto* report = std::get_if<proto::Report>(&membership->message.body))
      return report->generation;
    const auto* lost = std::get_if<proto::MemberLost>(&membership->message.body);
    return lost == nullptr ? 0 : lost->member;
  }

  Relayed envelope() {
    Relayed relayed;
    const Message inside = word();
    for (std::uint32_t n = choices_.below(8) == 0 ? 1 + choices_.below(4) : 1; n > 0; --n) {
      relayed.nodes.push_back(node());
      if (choices_.below(2) == 0 || !relayed.numbers.empty())
        relayed.numbers.resize(relayed.nodes.size(), 7);
    }
    relayed.message = encode(inside);
    relayed.answered = choices_.below(4) == 0 ? choices_.below(2) == 0 : is_answer(inside);
    return relayed;
  }

  void hear() {
    const proto::NodeId from = child();
    std::vector<Relayed> all;
    Message message;
    switch (choices_.below(3)) {
      case 0:
        message = word();
        all.push_back({{from}, encode(message), false, {7}});
        break;
      case 1:
        message = envelope();
        all.push_back(std::get<Relayed>(message));
        break;
      default:
        for (std::uint32_t n = choices_.below(5); n > 0; --n) all.push_back(envelope());
        message = Gathered{all};
    }
    said(from, message, all);
  }

  void said(proto::NodeId from, const Message& message, const std::vector<Relayed>& all) {
    const bool good =
        std::ranges::all_of(all, [&](const Relayed& each) { return may(from, each); });
    for (const Relayed& each : all) {
      const auto inside = decode(each.message);
      const Serial serial = good && inside.ok() ? serial_of(*inside) : 0;
      if (serial != 0) sent_.push_back({each.nodes[0], serial});
    }
    const auto up = router_.up(from, message);
    require(up.has_value() == good);
    if (up) went_up(*up);
  }

  // Messages as they come from the network.
  void raw() {
    const auto message = decode(std::as_bytes(choices_.some()));
    if (!message.ok()) return;
    const proto::NodeId from = child();
    if (const auto* relayed = std::get_if<Relayed>(&*message)) {
      static_cast<void>(router_.relay(*relayed));
      if (!may(from, *relayed)) require(!router_.up(from, *message));
    }
  }

  void went_up(const std::vector<Message>& messages) {
    for (const Message& message : messages) {
      if (const auto* one = std::get_if<Relayed>(&message)) went_up(*one);
      if (const auto* many = std::get_if<Gathered>(&message)) {
        for (const Relayed& each : many->messages) went_up(each);
      }
    }
  }
  void went_up(const Relayed& relayed) {
    require(relayed.nodes.size() == 1);
    const auto inside = decode(relayed.message);
    const Serial serial = inside.ok() ? serial_of(*inside) : 0;
    if (serial == 0) return;
    const auto first = std::ranges::find(sent_, relayed.nodes[0], &Sent::node);
    require(first != sent_.end() && first->serial == serial);  // the earliest of that node
    sent_.erase(first);
  }

  void ask() {
    Relayed question = envelope();
    question.nodes.clear();
    std::set<proto::NodeId> wanted;
    for (std::uint32_t n = 1 + choices_.below(6); n > 0; --n) question.nodes.push_back(node());
    question.numbers.resize(question.numbers.empty() ? 0 : question.nodes.size());
    for (const proto::NodeId to : question.nodes)
      if (to != kSelf && tree().within(to, kSelf)) wanted.insert(to);
    for (const Frame& frame : router_.relay(question)) {
      require(tree().parent(frame.child) == kSelf);
      if (*frame.bytes == question.message) {
        wanted.erase(frame.child);
        continue;
      }
      const auto wrapped = decode(*frame.bytes);
      require(wrapped.ok());
      for (const proto::NodeId to : std::get<Relayed>(*wrapped).nodes) {
        require(tree().within(to, frame.child));
        wanted.erase(to);
      }
    }
    require(wanted.empty());
  }

  Choices choices_;
  Router router_;
  Serial last_ = 0;
  std::vector<Sent> sent_;  // and not gone up yet, in order
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  RoutingAgent(Choices({data, std::min<std::size_t>(size, 2048)})).run();
  return 0;
}
