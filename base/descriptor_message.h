// A short text and any number of file descriptors, in one message of a Unix stream socket.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"

namespace regroup::base {

inline constexpr std::size_t kMostDescriptors = 250;          // the kernel's limit is 253
inline constexpr std::size_t kMostDescriptorText = 64 << 10;  // bytes

// Sends the message, with duplicates of the descriptors, as the first of a new connection, whose
// buffer has room for it. Never blocks. kInvalidArgument: it is too large, or `text` has a newline.
[[nodiscard]] Status send_descriptors(int socket, std::string_view text,
                                      std::span<const int> descriptors);

struct DescriptorMessage {
  std::string text;
  std::vector<Fd> descriptors;  // close on exec
};
// Receives a message. Blocks until `deadline`. kPeerLost: the peer has closed the connection.
// kDataLoss: what came is no message.
[[nodiscard]] Result<DescriptorMessage> receive_descriptors(int socket, TimePoint deadline);

}  // namespace regroup::base
