// Peeks (MSG_PEEK) for the end of the line first, then consumes up to it.
#include "launcher/lease/socket_line_reader.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace regroup::lease {

SocketLineReader::Outcome SocketLineReader::receive(int socket) {
  std::array<char, 16 << 10> bytes;
  const ssize_t there = ::recv(socket, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_PEEK);
  if (there < 0 && (errno == EAGAIN || errno == EINTR)) return Outcome::kNothing;
  if (there <= 0) return Outcome::kEnd;
  const auto* const last = bytes.cbegin() + there;
  const auto* const end = std::find(bytes.cbegin(), last, '\n');
  const auto wanted = static_cast<std::size_t>(end - bytes.cbegin()) + (end == last ? 0 : 1);
  const ssize_t count = ::recv(socket, bytes.data(), wanted, MSG_DONTWAIT);
  read_.append(bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  ::explicit_bzero(bytes.data(), bytes.size());  // the job's secret may follow the line
  if (read_.ends_with('\n')) return Outcome::kLine;
  return read_.size() < kLongest ? Outcome::kNothing : Outcome::kEnd;
}

}  // namespace regroup::lease
