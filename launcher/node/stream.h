// A standard stream on its way to another host: bytes go from a pipe here into a pipe there, no more at a
// time than the far side takes. So a reader that is slow, or gone, is felt by the writer as on one pipe, and
// what else goes over the same link never waits for it.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/fd.h"

namespace regroup::node {

// The near end: reads a pipe. Kept alive by its own pending operations until it has ended.
class StreamSource : public std::enable_shared_from_this<StreamSource> {
 public:
  // `send` gets what was read, at most kPiece bytes; `end`: there will be no more.
  using Send = std::function<void(std::span<const std::byte> bytes, bool end)>;
  // `pipe` is non-blocking.
  StreamSource(boost::asio::io_context& loop, core::Fd pipe, Send send);
  void start() { wait(); }
  // The far side has taken `bytes`, and will take as many more.
  void taken(std::size_t bytes);
  // Nobody will read any more: closes the pipe, so that who writes to it learns that.
  void stop();
  // All that is in the pipe now has been sent and taken.
  [[nodiscard]] bool idle();

  static constexpr std::size_t kPiece = 64 << 10;

 private:
  void wait();
  void read();

  boost::asio::posix::stream_descriptor pipe_;
  Send send_;
  std::size_t window_;
  std::size_t unanswered_ = 0;  // sent, and not taken
  bool waiting_ = false;
};

// The far end: writes to a pipe what comes.
class StreamTarget : public std::enable_shared_from_this<StreamTarget> {
 public:
  // `taken` gets the bytes that the pipe took; `broken`: it takes no more.
  using Taken = std::function<void(std::size_t bytes, bool broken)>;
  // `pipe` is non-blocking.
  StreamTarget(boost::asio::io_context& loop, core::Fd pipe, Taken taken);
  void write(std::span<const std::byte> bytes, bool end);
  void stop();
  // What the pipe has not taken yet.
  [[nodiscard]] std::size_t pending() const { return pending_.size() - sent_; }

 private:
  void push();
  void wait();
  void fail();

  boost::asio::posix::stream_descriptor pipe_;
  Taken taken_;
  std::vector<std::byte> pending_;  // of it, `sent_` bytes are written
  std::size_t sent_ = 0;
  bool ending_ = false;
  bool waiting_ = false;
  bool broken_ = false;
};

}  // namespace regroup::node
