// A line from a socket and not a byte from behind it, which may be for somebody else: there the job's secret
// comes, and it is to be in no buffer.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

namespace regroup::cmd {

class SocketLineReader {
 public:
  static constexpr std::size_t kLongest = 1 << 20;  // far more than an order to start an agent

  enum class Outcome { kNothing, kLine, kEnd };
  // What is in the socket by now, one line at most; never waits. kEnd: no line comes any more, since the
  // other side has ended or has sent kLongest bytes without an end.
  [[nodiscard]] Outcome receive(int socket);
  // After kLine: it, with its end.
  [[nodiscard]] std::string take() { return std::exchange(read_, {}); }
  // What has come of a line is not wanted: the next receive() is from another socket.
  void clear() { read_.clear(); }

 private:
  std::string read_;
};

}  // namespace regroup::cmd
