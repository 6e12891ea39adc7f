// Converts notices to FlatBuffers and back. Part of wire.cc.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>

#include "base/status.h"
#include "launcher/agent/messages.h"
#include "launcher/agent/wire_generated.h"

namespace regroup::agent {

inline std::unique_ptr<fb::NoticeSourcesT> table(const spec::NoticeRequest& m) {
  auto t = std::make_unique<fb::NoticeSourcesT>();
  t->file = m.file, t->command = m.command, t->address = m.address;
  t->every_ms = static_cast<std::uint32_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(m.every).count());
  return t;
}
inline spec::NoticeRequest plain(const fb::NoticeSourcesT& t) {
  return {t.file, t.command, t.address, std::chrono::milliseconds(std::max(10U, t.every_ms))};
}

inline fb::HostNoticeT table(const HostNotice& m) {
  fb::HostNoticeT t;
  t.within_ms = m.within_ms, t.why = m.why, t.kind = static_cast<std::uint8_t>(m.kind);
  return t;
}
inline base::Result<HostNotice> plain(const fb::HostNoticeT& t) {
  if (t.kind > static_cast<std::uint8_t>(HostNotice::Kind::kMoves))
    return base::data_loss("HostNotice: unknown kind");
  return HostNotice{t.within_ms, t.why, static_cast<HostNotice::Kind>(t.kind)};
}

}  // namespace regroup::agent
