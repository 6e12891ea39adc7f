// A member's connection to the agent of its node over a Unix socket. Used by the training thread only.
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
  // kUnavailable or kNotFound: no process listens at `path`.
  [[nodiscard]] static core::Result<AgentLink> connect(const std::string& path);
  // Connects to the rank that serves a World under the abstract socket `name`. kNotFound or kUnavailable:
  // none does; kInvalidArgument: a process of another user holds that name.
  [[nodiscard]] static core::Result<AgentLink> connect_to_rank(const std::string& name);

  AgentLink() = default;  // not connected
  [[nodiscard]] bool connected() const { return socket_.valid(); }
  [[nodiscard]] core::Status send(const core::Body& body);
  // Returns the next message, and the descriptor that came with it in `*fd` unless that is null. Blocks until
  // `deadline`; one in the past only polls. kDeadlineExceeded; kPeerLost: the agent has gone.
  [[nodiscard]] core::Result<core::Message> receive(core::TimePoint deadline, core::Fd* fd = nullptr);

 private:
  [[nodiscard]] static core::Result<AgentLink> connect_to(const core::UnixAddress& address,
                                                          const std::string& peer);
  [[nodiscard]] core::Status read_more(core::Fd* fd);
  [[nodiscard]] core::Status peer_lost() const;

  core::Fd socket_;
  core::Fd peer_;  // pidfd of the rank that serves the World, since its children may keep its sockets open
  std::string peer_name_;  // for messages
  core::FrameReader reader_;
};

}  // namespace regroup::elastic
