// Converts the messages of tree_messages.h to FlatBuffers and back. Part of wire.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/status.h"
#include "launcher/agent/tree_messages.h"
#include "launcher/agent/wire_generated.h"
#include "launcher/agent/wire_parts.h"

namespace regroup::agent {

inline fb::ChildEventT table(const ChildEvent& m) {
  fb::ChildEventT t;
  t.kind = static_cast<std::uint8_t>(m.kind), t.node = m.node, t.text = m.text;
  t.code = static_cast<std::uint8_t>(m.code);
  return t;
}
inline base::Result<ChildEvent> plain(const fb::ChildEventT& t) {
  const auto kind = static_cast<ChildEvent::Kind>(t.kind);
  const auto code = static_cast<Code>(t.code);
  const bool lost = kind == ChildEvent::Kind::kLost;
  if (kind > ChildEvent::Kind::kLost || code > Code::kInternal || lost == (code == Code::kOk))
    return base::data_loss("ChildEvent: unknown kind or code");
  return ChildEvent{kind, t.node, t.text, code};
}
inline fb::RelayedT table(const Relayed& m) {
  fb::RelayedT t;
  t.nodes = m.nodes, t.message = to_bytes(m.message), t.answered = m.answered,
  t.numbers = m.numbers;
  return t;
}
inline base::Result<Relayed> plain(const fb::RelayedT& t) {
  if (t.nodes.empty()) return base::data_loss("Relayed: expected at least one node");
  if (!t.numbers.empty() && t.numbers.size() != t.nodes.size())
    return base::data_loss("Relayed: expected one number per node");
  return Relayed{t.nodes, from_bytes(t.message), t.answered, t.numbers};
}
inline fb::GatheredT table(const Gathered& m) {
  fb::GatheredT t;
  for (const Relayed& relayed : m.messages)
    t.messages.push_back(std::make_unique<fb::RelayedT>(table(relayed)));
  return t;
}
inline base::Result<Gathered> plain(const fb::GatheredT& t) {
  Gathered m;
  for (const auto& relayed : t.messages) {
    REGROUP_ASSIGN_OR_RETURN(auto one, plain(*relayed));
    m.messages.push_back(std::move(one));
  }
  return m;
}

inline fb::AckT table(const Ack& m) {
  fb::AckT t;
  t.number = m.number, t.action = static_cast<std::uint8_t>(m.action);
  return t;
}
inline base::Result<Ack> plain(const fb::AckT& t) {
  const auto action = static_cast<Ack::Action>(t.action);
  if (action > Ack::Action::kRetransmit) return base::data_loss("Ack: unknown action");
  return Ack{t.number, action};
}

}  // namespace regroup::agent
