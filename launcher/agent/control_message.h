// Messages between the guardian and the agent of a job, over a socket pair. Both processes run the
// same program, forked, so the messages are plain structs: no foreign bytes arrive here.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstdint>
#include <functional>
#include <utility>

#include "base/fd.h"
#include "base/status.h"

namespace regroup::agent {

enum class ControlMessage : std::uint32_t {
  kSignal,       // guardian: send signal `value` to the process group of every member
  kStop,         // guardian: end the job; value: the signal that requested it
  kKill,         // guardian: end the job at once
  kCoordinator,  // guardian: the descriptor is connected to a coordinator; value: its incarnation
  kResumed,      // agent, before kStateLost: the step from which the job had resumed
  kStateLost,  // agent: the job ends because no member has its state; value: number of hosts whose
               // members may still run
  kDone,       // agent: all processes have ended; value: the exit status of the job
};

// A SOCK_SEQPACKET pair: {guardian's end, agent's end}.
[[nodiscard]] base::Result<std::pair<base::Fd, base::Fd>> control_sockets();

// Whether the guardian has requested the end of the job, or is gone. Peeks at the messages that
// wait at the agent's end and consumes none.
[[nodiscard]] bool end_requested(int socket);

// Consumes what waits at the agent's end. Call it before closing: the kernel discards the messages
// that the other side has not read yet, kDone among them, if a socket is closed with unread data.
void discard_control_messages(int socket);

// One end of the pair. Used by the loop's thread; handlers are called from the loop.
class ControlSocket {
 public:
  using Handler = std::function<void(ControlMessage message, std::int32_t value, base::Fd fd)>;
  // `lost` is called once when the other process is gone.
  ControlSocket(boost::asio::io_context& loop, base::Fd socket, Handler handler,
                std::function<void()> lost);
  // Never blocks. A duplicate of `fd`, unless it is -1, is passed on. False: the other process is
  // gone.
  bool send(ControlMessage message, std::int32_t value = 0, int fd = -1);

 private:
  void wait();
  [[nodiscard]] bool receive();

  boost::asio::posix::stream_descriptor socket_;
  Handler handler_;
  std::function<void()> lost_;
};

}  // namespace regroup::agent
