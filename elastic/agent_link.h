// A member's connection to the agent of its host over a Unix socket. Used by the training thread
// only.
#pragma once

#include <deque>
#include <string>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "base/unix_address.h"
#include "proto/message.h"
#include "proto/wire.h"

namespace regroup::elastic {

class AgentLink {
 public:
  // kUnavailable or kNotFound: no process listens at `path`.
  [[nodiscard]] static base::Result<AgentLink> connect(const std::string& path);
  // Connects to the rank that serves a World under the abstract socket `name`. kNotFound or
  // kUnavailable: none does; kInvalidArgument: a process of another user holds that name.
  [[nodiscard]] static base::Result<AgentLink> connect_to_rank(const std::string& name);

  AgentLink() = default;  // not connected
  [[nodiscard]] bool connected() const { return socket_.valid(); }
  [[nodiscard]] base::Status send(const proto::Body& body);
  // Returns the next message, and in *fd (unless `fd` is null) the descriptor that came with it:
  // each Welcome has one, and each DeviceLine but those that say that a slot has no line.
  // Blocks until `deadline`; only polls if that has passed. kDeadlineExceeded: no message came.
  // kPeerLost: the agent has closed the connection.
  [[nodiscard]] base::Result<proto::Message> receive(base::TimePoint deadline,
                                                     base::Fd* fd = nullptr);

 private:
  [[nodiscard]] static base::Result<AgentLink> connect_to(const base::UnixAddress& address,
                                                          const std::string& peer);
  [[nodiscard]] base::Status read_more();
  [[nodiscard]] base::Status peer_lost() const;

  base::Fd socket_;
  // pidfd of the rank that serves the World: its children may keep its sockets open after its end.
  base::Fd peer_;
  std::string peer_name_;  // for messages
  proto::FrameReader reader_;
  std::deque<base::Fd> descriptors_;  // of messages to come, in their order
};

}  // namespace regroup::elastic
