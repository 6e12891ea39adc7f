// A member's Unix socket to the agent of its node: joins, then hears when it is excluded. Used by the
// training thread.
#pragma once

#include <string>

#include "core/clock.h"
#include "core/fd.h"
#include "core/message.h"
#include "core/status.h"
#include "core/unix_address.h"
#include "core/wire.h"

namespace regroup::elastic {

class AgentLink {
 public:
  // kUnavailable or kNotFound if nobody listens at `path`.
  [[nodiscard]] static core::Result<AgentLink> connect(const std::string& path);
  // To the rank that serves a World under the abstract `name`. kNotFound or kUnavailable: none does;
  // kInvalidArgument: a process of another user has that name.
  [[nodiscard]] static core::Result<AgentLink> connect_to_rank(const std::string& name);

  AgentLink() = default;  // not connected
  [[nodiscard]] bool connected() const { return socket_.valid(); }
  [[nodiscard]] core::Status send(const core::Body& body);
  // The next message; a descriptor that came with it goes to `*fd` if that is not null. kDeadlineExceeded, or
  // kPeerLost if the agent is gone. A deadline in the past only looks.
  [[nodiscard]] core::Result<core::Message> receive(core::TimePoint deadline, core::Fd* fd = nullptr);

 private:
  [[nodiscard]] static core::Result<AgentLink> connect_to(const core::UnixAddress& address,
                                                          const std::string& who);
  [[nodiscard]] core::Status read_more(core::Fd* fd);
  [[nodiscard]] core::Status peer_lost() const;

  core::Fd socket_;
  core::Fd peer_;    // a pidfd of the rank that serves the World: its children may keep its sockets open
  std::string who_;  // for messages
  core::FrameReader reader_;
};

}  // namespace regroup::elastic
