// Message headers as bytes: a valid one of each kind, and some that no member sends.
#pragma once

#include <climits>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "collective/ucx/active_message.h"
#include "regroup/operation.h"
#include "shmem/arena.h"
#include "tests/collective/reference.h"

namespace regroup::collective::testing {

struct RawMessage {
  std::string what;
  Bytes header;
  std::size_t bytes = 0;  // of data that follows
};

// The communicator of all ranks of a World that open_communicator() makes by default.
inline constexpr ucx::CommunicatorId kAllRanks{
    proto::Position().value, 0, static_cast<std::uint32_t>(shmem::ChannelKind::kSteps)};

// The bytes of a header, with zeros in its padding.
[[nodiscard]] inline Bytes bytes_of(const ucx::MessageHeader& header) {
  Bytes bytes(sizeof header);
  const auto put = [&](const auto& member) {
    const auto at =
        reinterpret_cast<const std::byte*>(&member) - reinterpret_cast<const std::byte*>(&header);
    std::memcpy(bytes.data() + at, &member, sizeof member);
  };
  put(header.key.communicator), put(header.key.kind), put(header.key.number), put(header.key.tag),
      put(header.key.from);
  put(header.signature), put(header.acks), put(header.nonce);
  return bytes;
}

inline constexpr std::uint64_t kNonce = 0x1234'5678'9abc'def0;

// The header of rank `from` in its first operation or point-to-point message, which has 8 bytes.
[[nodiscard]] inline ucx::MessageHeader header_of(ucx::MessageKind kind, int from,
                                                  std::uint64_t nonce = kNonce) {
  static Bytes eight(8);
  const bool message =
      kind == ucx::MessageKind::kReadyToReceive || kind == ucx::MessageKind::kPointToPoint;
  const Operation o = message ? Operation::send(eight, 0)
                              : Operation::allreduce(eight, eight, Dtype::kFloat32, Op::kSum);
  return {{kAllRanks, kind, 1, 0, from}, signature_of(o, 3), 1, nonce};
}

[[nodiscard]] inline std::vector<RawMessage> valid_messages(int from,
                                                            std::uint64_t nonce = kNonce) {
  const auto one = [&](const char* what, ucx::MessageKind kind, std::size_t bytes) {
    return RawMessage{what, bytes_of(header_of(kind, from, nonce)), bytes};
  };
  return {one("probe", ucx::MessageKind::kProbe, 0),
          one("data", ucx::MessageKind::kData, 4096),
          one("ready_to_receive", ucx::MessageKind::kReadyToReceive, 0),
          one("point_to_point", ucx::MessageKind::kPointToPoint, 8),
          one("ack", ucx::MessageKind::kAck, 0),
          one("handshake", ucx::MessageKind::kHandshake, 0),
          one("failure", ucx::MessageKind::kFailure, 20)};
}

// Messages to a member of a World of three from a process that knows its nonce.
[[nodiscard]] inline std::vector<RawMessage> invalid_messages(int from,
                                                              std::uint64_t nonce = kNonce) {
  std::vector<RawMessage> out;
  const auto add = [&](const char* what, ucx::MessageKind kind, std::size_t bytes, auto change) {
    ucx::MessageHeader header = header_of(kind, from, nonce);
    change(header);
    out.push_back({what, bytes_of(header), bytes});
  };
  const auto nothing = [](ucx::MessageHeader&) {};
  const Bytes whole = bytes_of(header_of(ucx::MessageKind::kProbe, from, nonce));
  out.push_back({"no header", {}});
  out.push_back({"a short header", {whole.begin(), whole.end() - 1}});
  out.push_back({"a long header", whole});
  out.back().header.emplace_back();
  for (const int kind : {8, 255})
    add("an unknown kind", static_cast<ucx::MessageKind>(kind), 0, nothing);
  for (const int rank : {-1, 3, INT_MIN, INT_MAX}) {
    for (const ucx::MessageKind kind : {ucx::MessageKind::kProbe, ucx::MessageKind::kHandshake})
      add("of no rank", kind, 0, [rank](ucx::MessageHeader& header) { header.key.from = rank; });
  }
  for (const ucx::MessageKind kind : {ucx::MessageKind::kProbe, ucx::MessageKind::kData}) {
    add("an unknown operation", kind, 0,
        [](ucx::MessageHeader& header) { header.signature.what = 12; });
    add("an unknown operation", kind, 0,
        [](ucx::MessageHeader& header) { header.signature.what = 255; });
    add("an unknown dtype", kind, 0,
        [](ucx::MessageHeader& header) { header.signature.what = 1 | 9 << 8; });
    add("an unknown op", kind, 0,
        [](ucx::MessageHeader& header) { header.signature.what = 1 | 7 << 16; });
  }
  for (const std::size_t bytes : {7, 9, 4096})
    add("of another size", ucx::MessageKind::kPointToPoint, bytes, nothing);
  for (const ucx::MessageKind kind : {ucx::MessageKind::kProbe, ucx::MessageKind::kReadyToReceive,
                                      ucx::MessageKind::kAck, ucx::MessageKind::kHandshake})
    add("with data that its kind has not", kind, 8, nothing);
  return out;
}

}  // namespace regroup::collective::testing
