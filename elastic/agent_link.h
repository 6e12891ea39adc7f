// A member's Unix socket to the agent of its node: joins, then hears when it is excluded. Used by the
// training thread.
#pragma once

#include <string>

#include "core/clock.h"
#include "core/fd.h"
#include "core/message.h"
#include "core/status.h"
#include "core/wire.h"

namespace regroup::elastic {

class AgentLink {
 public:
  // kUnavailable or kNotFound if nobody listens at `path`.
  [[nodiscard]] static core::Result<AgentLink> connect(const std::string& path);

  AgentLink() = default;  // not connected
  [[nodiscard]] bool connected() const { return socket_.valid(); }
  [[nodiscard]] core::Status send(const core::Body& body);
  // The next message; a descriptor that came with it goes to `*fd` if that is not null. kDeadlineExceeded, or
  // kPeerLost if the agent is gone. A deadline in the past only looks.
  [[nodiscard]] core::Result<core::Message> receive(core::TimePoint deadline, core::Fd* fd = nullptr);

 private:
  [[nodiscard]] core::Status read_more(core::Fd* fd);

  core::Fd socket_;
  core::FrameReader reader_;
};

}  // namespace regroup::elastic
