// Flow-controlled forwarding of a standard stream to another host: bytes are read from a pipe here
// and written to a pipe there, within a window of credits. The writer notices a slow or closed
// reader as on a local pipe, and other messages on the same link never wait for the stream.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/fd.h"

namespace regroup::agent {

// The sending end: reads a pipe. Kept alive by its pending operations until the stream has ended.
class StreamSource : public std::enable_shared_from_this<StreamSource> {
 public:
  // `send` gets the bytes that were read, at most kPiece; `end`: the stream has ended.
  using Send = std::function<void(std::span<const std::byte> bytes, bool end)>;
  // `pipe` is non-blocking.
  StreamSource(boost::asio::io_context& loop, base::Fd pipe, Send send);
  void start() { wait(); }
  // The receiving end has consumed `bytes`: the window grows by as many.
  void consumed(std::size_t bytes);
  // The reader is gone: closes the pipe, so that its writer gets SIGPIPE.
  void stop();
  // All bytes that are in the pipe now have been sent and consumed.
  [[nodiscard]] bool idle();

  static constexpr std::size_t kPiece = 64 << 10;

 private:
  void wait();
  void read();

  boost::asio::posix::stream_descriptor pipe_;
  Send send_;
  std::size_t window_;
  std::size_t unanswered_ = 0;  // bytes sent and not consumed
  bool waiting_ = false;
};

// The receiving end: writes the bytes to a pipe.
class StreamTarget : public std::enable_shared_from_this<StreamTarget> {
 public:
  // Called with the number of bytes that the pipe has accepted; `broken`: it accepts no more.
  using Consumed = std::function<void(std::size_t bytes, bool broken)>;
  // `pipe` is non-blocking.
  StreamTarget(boost::asio::io_context& loop, base::Fd pipe, Consumed consumed);
  void write(std::span<const std::byte> bytes, bool end);
  void stop();
  // Bytes that the pipe has not accepted yet.
  [[nodiscard]] std::size_t pending() const { return pending_.size() - sent_; }

 private:
  void push();
  void wait();
  void fail();

  boost::asio::posix::stream_descriptor pipe_;
  Consumed consumed_;
  std::vector<std::byte> pending_;  // of it, `sent_` bytes are written
  std::size_t sent_ = 0;
  bool ending_ = false;
  bool waiting_ = false;
  bool broken_ = false;
};

}  // namespace regroup::agent
