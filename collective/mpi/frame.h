// Frames between members and the carrier process of their host (over a Unix stream socket), and
// between carriers (each one MPI message).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"

namespace regroup::collective::mpi {

enum class FrameKind : std::uint32_t {
  kHello,  // member to carrier, first: `from` is its rank; the answer: `number` is its process
  kReady,  // carrier to member: all carriers of the generation are connected
  kData,   // a message; `number` counts those from `from` to `to`
  kAck,    // `from` has received all messages of `to` up to `number`
  kNote,   // bytes of the carrier for the carrier of host `to`, and from that of host `from`
  kFail,   // member to carrier: end now; carrier to member: it ends, the bytes are the reason
  kBye,    // member to carrier, last: it needs the carrier no longer
  kProbe,  // member to carrier, which returns it once the thread that calls MPI has had it
};

// Precedes the bytes of a frame, with its layout in memory: all hosts run the same program on the
// same architecture.
struct FrameHeader {
  FrameKind kind = FrameKind::kHello;
  std::int32_t from = 0;  // rank in the World; in kNote: number of a host
  std::int32_t to = 0;
  std::uint32_t unused = 0;
  std::uint64_t number = 0;
  std::uint64_t bytes = 0;  // that follow
};
inline constexpr std::size_t kMostFrameBytes = std::size_t{1} << 30;

// A frame as it is sent: the header, then the bytes.
using SharedFrame = std::shared_ptr<const std::vector<std::byte>>;
[[nodiscard]] SharedFrame make_frame(FrameHeader header, std::span<const std::byte> first = {},
                                     std::span<const std::byte> second = {});
// The header of a frame; kDataLoss: it is no frame.
[[nodiscard]] base::Result<FrameHeader> header_of(std::span<const std::byte> frame);

struct Frame {
  FrameHeader header;
  std::unique_ptr<std::byte[]> bytes;
};

// Reads frames from a non-blocking socket.
class FrameReader {
 public:
  enum class Read {
    kFrame,  // `frame` is complete
    kLater,  // more bytes must arrive first
    kEnd,    // the peer has closed the socket, or sent what is no frame
  };
  [[nodiscard]] Read next(int socket, Frame* frame);

 private:
  Frame frame_;
  std::size_t filled_ = 0;  // bytes read of the header, then of the bytes
  bool has_header_ = false;
};

// Writes frames to a non-blocking socket, in order.
class FrameWriter {
 public:
  // Returns the number of the frame for written().
  std::uint64_t put(SharedFrame frame) {
    queue_.push_back(std::move(frame));
    return written() + queue_.size();
  }
  // The number of frames that the socket has taken.
  [[nodiscard]] std::uint64_t written() const { return frames_; }
  [[nodiscard]] bool empty() const { return queue_.empty(); }
  // Writes what the socket takes. kPeerLost: the peer has closed it.
  [[nodiscard]] base::Status flush(int socket);

 private:
  std::deque<SharedFrame> queue_;
  std::size_t written_ = 0;   // bytes of the first frame
  std::uint64_t frames_ = 0;  // written
};

}  // namespace regroup::collective::mpi
