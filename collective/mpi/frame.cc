// Reads and writes frames.
#include "collective/mpi/frame.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/status.h"

namespace regroup::collective::mpi {
namespace {

bool is_valid(const FrameHeader& header) {
  return header.kind <= FrameKind::kProbe && header.bytes <= kMostFrameBytes;
}

}  // namespace

SharedFrame make_frame(FrameHeader header, std::span<const std::byte> first,
                       std::span<const std::byte> second) {
  header.bytes = first.size() + second.size();
  auto frame = std::make_shared<std::vector<std::byte>>();
  frame->reserve(sizeof header + header.bytes);
  const auto head = std::as_bytes(std::span(&header, 1));
  frame->assign(head.begin(), head.end());
  frame->insert(frame->end(), first.begin(), first.end());
  frame->insert(frame->end(), second.begin(), second.end());
  return frame;
}

base::Result<FrameHeader> header_of(std::span<const std::byte> frame) {
  FrameHeader header;
  if (frame.size() < sizeof header) return base::data_loss("a frame without a header");
  std::memcpy(&header, frame.data(), sizeof header);
  if (!is_valid(header) || header.bytes != frame.size() - sizeof header)
    return base::data_loss("a frame with an invalid header");
  return header;
}

FrameReader::Read FrameReader::next(int socket, Frame* frame) {
  for (;;) {
    const std::size_t wanted = has_header_ ? frame_.header.bytes : sizeof(FrameHeader);
    if (filled_ == wanted && has_header_) {
      *frame = std::exchange(frame_, {});
      has_header_ = false;
      filled_ = 0;
      return Read::kFrame;
    }
    if (filled_ == wanted) {
      if (!is_valid(frame_.header)) return Read::kEnd;
      frame_.bytes = std::make_unique_for_overwrite<std::byte[]>(frame_.header.bytes);
      has_header_ = true;
      filled_ = 0;
      continue;
    }
    std::byte* const to =
        has_header_ ? frame_.bytes.get() : reinterpret_cast<std::byte*>(&frame_.header);
    const ssize_t got = ::recv(socket, to + filled_, wanted - filled_, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Read::kLater;
    if (got <= 0) return Read::kEnd;
    filled_ += static_cast<std::size_t>(got);
  }
}

base::Status FrameWriter::flush(int socket) {
  while (!queue_.empty()) {
    const std::vector<std::byte>& frame = *queue_.front();
    const ssize_t sent = ::send(socket, frame.data() + written_, frame.size() - written_,
                                MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return {};
    if (sent < 0) return base::peer_lost("send: " + std::string(std::strerror(errno)));
    written_ += static_cast<std::size_t>(sent);
    if (written_ < frame.size()) continue;
    queue_.pop_front();
    frames_ += 1;
    written_ = 0;
  }
  return {};
}

}  // namespace regroup::collective::mpi
