// Control messages on a connected stream socket, for loops: agent and coordinator, agent and
// member, coordinator and control command.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <deque>
#include <functional>
#include <memory>

#include "base/fd.h"
#include "base/status.h"
#include "proto/message.h"
#include "proto/wire.h"

namespace regroup::transport {

// Used by the loop's thread; kept alive by its own pending operations until it is closed.
class Channel : public std::enable_shared_from_this<Channel> {
 public:
  using Handler = std::function<void(const proto::Message&)>;
  // `closed` is called once when the peer closes the connection or sends an invalid message; not
  // after close(). Received descriptors are closed.
  Channel(boost::asio::io_context& loop, base::Fd socket, Handler handler,
          std::function<void(const base::Status&)> closed);
  void start() { wait_read(); }

  // Queues a message, and a duplicate of `fd` unless it is -1. Never blocks. A receiver with more
  // than kMostQueued bytes pending counts as lost. False: the message exceeds a frame and is not
  // sent.
  bool send(const proto::Message& message, int fd = -1);
  // No handler is called after this call.
  void close_when_sent();
  void close();
  [[nodiscard]] bool open() const { return socket_.is_open(); }
  // Closes the connection and calls `closed`, unless it was called before.
  void fail(const base::Status& why);

 private:
  struct Frame {
    std::vector<std::byte> bytes;
    std::size_t sent = 0;
    base::Fd fd;
  };

  void wait_read();
  void read();
  void deliver();
  void write();
  [[nodiscard]] ssize_t write_some(Frame& frame);

  boost::asio::posix::stream_descriptor socket_;
  Handler handler_;
  std::function<void(const base::Status&)> closed_;
  proto::FrameReader reader_;
  std::deque<Frame> queue_;
  std::size_t queued_ = 0;
  bool waiting_to_write_ = false;
  bool closing_ = false;
};

}  // namespace regroup::transport
