// What agents of a tree tell of each other, between tree_messages.h and FlatBuffers: a part of wire.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "launcher/node/tree_messages.h"
#include "launcher/node/wire_generated.h"
#include "launcher/node/wire_parts.h"

namespace regroup::node {

inline fb::ChildNewsT table(const ChildNews& m) {
  fb::ChildNewsT t;
  t.kind = static_cast<std::uint8_t>(m.kind), t.node = m.node, t.text = m.text;
  t.code = static_cast<std::uint8_t>(m.code);
  return t;
}
inline core::Result<ChildNews> plain(const fb::ChildNewsT& t) {
  const auto kind = static_cast<ChildNews::Kind>(t.kind);
  const auto code = static_cast<Code>(t.code);
  const bool lost = kind == ChildNews::Kind::kLost;
  if (kind > ChildNews::Kind::kLost || code > Code::kInternal || lost == (code == Code::kOk))
    return Status(Code::kDataLoss, "ChildNews: no such kind or code");
  return ChildNews{kind, t.node, t.text, code};
}
inline fb::RelayedT table(const Relayed& m) {
  fb::RelayedT t;
  t.nodes = m.nodes, t.message = to_bytes(m.message), t.answered = m.answered, t.numbers = m.numbers;
  return t;
}
inline core::Result<Relayed> plain(const fb::RelayedT& t) {
  if (t.nodes.empty()) return Status(Code::kDataLoss, "Relayed: for nobody");
  if (!t.numbers.empty() && t.numbers.size() != t.nodes.size())
    return Status(Code::kDataLoss, "Relayed: not a number for each");
  return Relayed{t.nodes, from_bytes(t.message), t.answered, t.numbers};
}
inline fb::GatheredT table(const Gathered& m) {
  fb::GatheredT t;
  for (const Relayed& relayed : m.messages)
    t.messages.push_back(std::make_unique<fb::RelayedT>(table(relayed)));
  return t;
}
inline core::Result<Gathered> plain(const fb::GatheredT& t) {
  Gathered m;
  for (const auto& relayed : t.messages) {
    auto one = plain(*relayed);
    if (!one.ok()) return one.status();
    m.messages.push_back(std::move(*one));
  }
  return m;
}

inline fb::HeardT table(const Heard& m) {
  fb::HeardT t;
  t.number = m.number, t.then = static_cast<std::uint8_t>(m.then);
  return t;
}
inline core::Result<Heard> plain(const fb::HeardT& t) {
  const auto then = static_cast<Heard::Then>(t.then);
  if (then > Heard::Then::kAgain) return Status(Code::kDataLoss, "Heard: no such kind");
  return Heard{t.number, then};
}

}  // namespace regroup::node
