// Reads one line from a socket without consuming the bytes after it: the job's secret may follow
// the line, and it must not stay in any buffer.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

namespace regroup::lease {

class SocketLineReader {
 public:
  static constexpr std::size_t kLongest = 1 << 20;  // far more than a message to start an agent

  enum class Outcome { kNothing, kLine, kEnd };
  // Reads what has arrived, up to the end of a line; never blocks. kEnd: no line will follow,
  // because the other side has closed the connection or has sent kLongest bytes without an end of
  // line.
  [[nodiscard]] Outcome receive(int socket);
  // After kLine: the line with its '\n'.
  [[nodiscard]] std::string take() { return std::exchange(read_, {}); }
  // Drops a partial line: the next receive() reads from another socket.
  void clear() { read_.clear(); }

 private:
  std::string read_;
};

}  // namespace regroup::lease
