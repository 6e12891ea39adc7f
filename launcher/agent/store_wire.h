// Converts the messages about stores to FlatBuffers and back. Part of wire.cc.
#pragma once

#include "base/status.h"
#include "launcher/agent/store.h"
#include "launcher/agent/wire_bounds.h"
#include "launcher/agent/wire_generated.h"
#include "launcher/agent/wire_parts.h"

namespace regroup::agent {

inline fb::StartStoreT table(const StartStore& m) {
  fb::StartStoreT t;
  t.store = m.store, t.stores = m.stores, t.address = m.address, t.seed = m.seed;
  t.bytes = m.bytes, t.servers = m.servers, t.most_servers = m.most_servers;
  t.hang_ms = static_cast<std::uint64_t>(m.hang_timeout.count());
  t.directory = m.directory, t.owner = m.owner, t.resume = m.resume;
  return t;
}
inline base::Result<StartStore> plain(const fb::StartStoreT& t) {
  constexpr std::uint64_t kLongest = std::uint64_t{1} << 40;
  if (t.store >= t.stores || t.servers < t.stores || t.most_servers < t.servers ||
      t.hang_ms > kLongest)
    return base::data_loss("StartStore: expected a server for each store");
  return StartStore{t.store,     t.stores,  t.address,      t.seed,
                    t.bytes,     t.servers, t.most_servers, std::chrono::milliseconds(t.hang_ms),
                    t.directory, t.owner,   t.resume};
}
inline fb::QueryStoreT table(const QueryStore& m) {
  fb::QueryStoreT t;
  t.query = m.query, t.servers = m.servers, t.save = m.save, t.lost = m.lost;
  return t;
}
inline base::Result<QueryStore> plain(const fb::QueryStoreT& t) {
  if (!t.save.empty() && !bounded_json(t.save))
    return base::data_loss("QueryStore: JSON too long or too deep");
  return QueryStore{t.query, t.servers, t.save, t.lost};
}
inline fb::StoreStartedT table(const StoreStarted& m) {
  fb::StoreStartedT t;
  t.address = m.address, t.socket = m.socket, t.version = m.version;
  set_status(m.status, t);
  return t;
}
inline base::Result<StoreStarted> plain(const fb::StoreStartedT& t) {
  StoreStarted m{{}, t.address, t.socket, t.version};
  REGROUP_RETURN_IF_ERROR(plain_status(t, "StoreStarted: code", &m.status));
  return m;
}
inline fb::StoreReplyT table(const StoreReply& m) {
  fb::StoreReplyT t;
  t.query = m.query, t.text = m.text;
  set_status(m.status, t);
  return t;
}
inline base::Result<StoreReply> plain(const fb::StoreReplyT& t) {
  if (!bounded_json(t.text)) return base::data_loss("StoreReply: JSON too long or too deep");
  StoreReply m{t.query, {}, t.text};
  REGROUP_RETURN_IF_ERROR(plain_status(t, "StoreReply: code", &m.status));
  return m;
}
inline fb::StoreFailedT table(const StoreFailed& m) {
  fb::StoreFailedT t;
  t.why = m.why;
  return t;
}
inline base::Result<StoreFailed> plain(const fb::StoreFailedT& t) { return StoreFailed{t.why}; }

}  // namespace regroup::agent
