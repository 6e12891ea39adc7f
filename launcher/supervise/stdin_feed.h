// The launcher's standard input on its way to one member, or to all.
#pragma once

#include <utility>

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <string_view>
#include <vector>

#include "core/fd.h"
#include "launcher/supervise/readiness.h"

namespace regroup::launcher {

// Every member gets every byte. Reads no more than the slowest takes; one that closed its end is left out,
// and without any the reading ends. The end of the input closes the pipes. A terminal is read only while this
// process group is in its foreground. Kept alive by its own pending operations until stop().
class StdinFeed : public std::enable_shared_from_this<StdinFeed> {
 public:
  // `input` is borrowed; or, if it is our `own`, becomes /dev/null when nobody takes any more, so that who
  // writes to it learns that.
  StdinFeed(boost::asio::io_context& loop, int input, bool own = false);
  // `pipe` is a writing end, non-blocking. Before start() only.
  void add(core::Fd pipe);
  [[nodiscard]] std::size_t members() const { return members_.size(); }
  void start() { wait_input(); }
  void stop();

 private:
  struct Member {
    boost::asio::posix::stream_descriptor pipe;
    std::string_view rest;
  };

  [[nodiscard]] bool in_background() const;
  void wait_input();
  void wait_foreground();
  void read();
  void write(Member& member);
  void next_if_taken();
  void close_own();

  Readiness readiness_;
  int input_;
  bool own_;
  bool terminal_;
  boost::asio::steady_timer look_again_;
  std::vector<std::unique_ptr<Member>> members_;
  std::array<char, 64 << 10> bytes_{};
};

}  // namespace regroup::launcher
