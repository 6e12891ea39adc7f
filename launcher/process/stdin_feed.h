// Feeds the launcher's standard input to one member, or to all.
#pragma once

#include <utility>

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "launcher/process/readiness.h"

namespace regroup::process {

// Every member gets every byte. Reads no more than the slowest member takes; a member that closed
// its end is left out, and without members reading ends. EOF of the input closes the pipes. A
// terminal is read only while this process group is in the foreground. Kept alive by its pending
// operations until stop().
class StdinFeed : public std::enable_shared_from_this<StdinFeed> {
 public:
  // `input` is borrowed. If it is `own`, it becomes /dev/null when no member reads any more, so
  // that its writer gets SIGPIPE.
  StdinFeed(boost::asio::io_context& loop, int input, bool own = false);
  // `pipe` is a non-blocking writing end. Before start() only.
  void add(base::Fd pipe);
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

}  // namespace regroup::process
