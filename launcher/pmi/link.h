// The socket pair between agent and regroup-pmi: messages in packets of at most kPacketBytes; the
// last packet of a message may carry a descriptor.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <deque>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "launcher/pmi/messages.h"

namespace regroup::pmi {

[[nodiscard]] base::Result<std::pair<base::Fd, base::Fd>> link_sockets();

// Used by the loop's thread.
class Link {
 public:
  using Handler = std::function<void(const Message& message, base::Fd fd)>;
  // `lost` is called once, when the other side has closed the link or sent a malformed message.
  // Neither handler may destroy the Link.
  Link(boost::asio::io_context& loop, base::Fd socket, Handler handler,
       std::function<void(const base::Status&)> lost);

  // Queues a message together with `fd`. Never blocks. False: it is larger than kMaxMessageBytes,
  // or the other side is gone.
  bool send(const Message& message, base::Fd fd = {});
  // Blocks until all queued messages are in the socket, from which the other side reads them even
  // if this process dies.
  void flush();
  // Handles all that has arrived by now.
  void poll();

 private:
  struct Packet {
    std::vector<std::byte> bytes;
    base::Fd fd;
  };

  void wait_read();
  [[nodiscard]] bool receive();
  [[nodiscard]] bool take(std::span<const std::byte> packet, base::Fd fd);
  void write();
  void fail(const base::Status& why);

  boost::asio::posix::stream_descriptor socket_;
  Handler handler_;
  std::function<void(const base::Status&)> lost_;
  std::vector<std::byte> room_;
  std::vector<std::byte> partial_;  // a message whose last packet has not arrived
  std::deque<Packet> queue_;
  bool waiting_to_write_ = false;
};

}  // namespace regroup::pmi
