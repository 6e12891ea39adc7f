// Encoding of the messages about nodes and state transfers; a part of wire.cc.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "proto/node_message.h"
#include "proto/wire_generated.h"

namespace regroup::proto {

inline fb::PeerAddressesT table(const PeerAddresses& m) {
  fb::PeerAddressesT t;
  t.generation = m.generation;
  for (const MemberAddress& entry : m.members) {
    auto& out = t.members.emplace_back(std::make_unique<fb::MemberAddressT>());
    out->member = entry.member;
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(entry.address.data());
    out->address.assign(bytes, bytes + entry.address.size());
  }
  return t;
}
inline PeerAddresses plain(const fb::PeerAddressesT& t) {
  PeerAddresses m{t.generation, {}};
  for (const auto& entry : t.members) {
    const auto bytes = std::as_bytes(std::span(entry->address));
    m.members.push_back({entry->member, {bytes.begin(), bytes.end()}});
  }
  return m;
}
inline fb::PeerSuspectT table(const PeerSuspect& m) {
  fb::PeerSuspectT t;
  t.member = m.member, t.why = m.why;
  return t;
}
inline PeerSuspect plain(const fb::PeerSuspectT& t) { return {t.member, t.why}; }
inline fb::DivergedT table(const Diverged& m) {
  fb::DivergedT t;
  t.member = m.member, t.why = m.why;
  return t;
}
inline Diverged plain(const fb::DivergedT& t) { return {t.member, t.why}; }
inline fb::CarrierLostT table(const CarrierLost& m) {
  fb::CarrierLostT t;
  t.generation = m.generation, t.why = m.why;
  return t;
}
inline CarrierLost plain(const fb::CarrierLostT& t) { return {t.generation, t.why}; }
inline fb::NodeUpT table(const NodeUp& m) {
  fb::NodeUpT t;
  t.node = m.node, t.name = m.name, t.slots = m.slots, t.leased = m.leased, t.for_now = m.for_now;
  return t;
}
inline NodeUp plain(const fb::NodeUpT& t) { return {t.node, t.name, t.slots, t.leased, t.for_now}; }
inline fb::NodeSilentT table(const NodeSilent& m) {
  fb::NodeSilentT t;
  t.node = m.node, t.silent = m.silent;
  return t;
}
inline NodeSilent plain(const fb::NodeSilentT& t) { return {t.node, t.silent}; }
inline fb::NodeLostT table(const NodeLost& m) {
  fb::NodeLostT t;
  t.node = m.node, t.why = m.why;
  return t;
}
inline NodeLost plain(const fb::NodeLostT& t) { return {t.node, t.why}; }
inline fb::NodesKnownT table(const NodesKnown& m) {
  fb::NodesKnownT t;
  t.resume = m.resume, t.shards = m.shards;
  return t;
}
inline NodesKnown plain(const fb::NodesKnownT& t) { return {t.resume, t.shards}; }

inline fb::StartSourceT table(const StartSource& m) {
  fb::StartSourceT t;
  t.transfer = m.transfer, t.step = m.step;
  return t;
}
inline StartSource plain(const fb::StartSourceT& t) { return {t.transfer, t.step}; }
inline fb::SourceStatusT table(const SourceStatus& m) {
  fb::SourceStatusT t;
  t.transfer = m.transfer, t.step = m.step, t.endpoints = m.endpoints, t.why = m.why;
  return t;
}
inline SourceStatus plain(const fb::SourceStatusT& t) {
  return {t.transfer, t.step, t.endpoints, t.why};
}
inline fb::StartTargetT table(const StartTarget& m) {
  fb::StartTargetT t;
  t.transfer = m.transfer, t.step = m.step, t.members = m.members;
  for (const SourceAgent& source : m.sources) {
    auto& out = t.sources.emplace_back(std::make_unique<fb::SourceAgentT>());
    out->node = source.node, out->endpoints = source.endpoints, out->name = source.name;
  }
  return t;
}
inline StartTarget plain(const fb::StartTargetT& t) {
  StartTarget m{t.transfer, t.step, t.members, {}};
  for (const auto& source : t.sources)
    m.sources.push_back({source->node, source->endpoints, source->name});
  return m;
}
inline fb::TargetStatusT table(const TargetStatus& m) {
  fb::TargetStatusT t;
  t.transfer = m.transfer, t.member = m.member, t.step = m.step, t.why = m.why;
  return t;
}
inline TargetStatus plain(const fb::TargetStatusT& t) {
  return {t.transfer, t.member, t.step, t.why};
}
inline fb::EndTransferT table(const EndTransfer& m) {
  fb::EndTransferT t;
  t.transfer = m.transfer;
  return t;
}
inline EndTransfer plain(const fb::EndTransferT& t) { return {t.transfer}; }

}  // namespace regroup::proto
