// What members say to each other over the mesh: messages, told apart by a key.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "collective/shm/sync_points.h"

namespace regroup::collective {

// A communicator among those of a generation.
struct CommunicatorId {
  std::uint64_t instance = 0;  // as in ShmOptions
  std::uint32_t group = 0;     // 0: not made by split()
  std::uint32_t channel = 0;   // as in ShmOptions

  auto operator<=>(const CommunicatorId&) const = default;
};

enum class MessageKind : std::uint8_t {
  kProbe,           // "I am in this operation": the roll call
  kData,            // of a collective operation
  kReadyToReceive,  // "I want your message, of this size"
  kPointToPoint,    // of send()
  kAck,             // "I have your message"
  kHandshake,       // "We are connected", and as its number the sender's nonce
  kFailure,         // "It is all over, and this is why"
};

// Messages of one key are taken in the order in which they were sent.
struct MatchKey {
  CommunicatorId communicator;
  MessageKind kind = MessageKind::kData;
  std::uint64_t number = 0;  // of the collective operation, or of the message between the two
  std::uint64_t tag = 0;     // of the operation
  std::int32_t from = 0;     // rank in the World

  auto operator<=>(const MatchKey&) const = default;
};

// Travels in front of the data, as it lies in memory: members run the same program on the same architecture.
struct MessageHeader {
  MatchKey key;
  CollectiveSignature call;  // the operation, so that a disagreement shows
  std::uint64_t acks = 0;    // so many messages that wait for thanks have come since the last message
  std::uint64_t nonce = 0;   // of whom it is for, in this generation; only members know it
};

// The header of a message with `bytes` of data that came to the member with `nonce` of a World of `ranks`;
// nothing if no member says such a thing. Anybody who reaches the port may have sent it.
[[nodiscard]] std::optional<MessageHeader> parse_header(std::span<const std::byte> header, std::size_t bytes,
                                                        std::size_t ranks, std::uint64_t nonce);

// A message that has come. Its data is with UCX, or still with the sender.
struct ActiveMessage {
  MessageHeader header;
  std::size_t bytes = 0;
  void* data = nullptr;  // of UCX: the data, or what it can be fetched with
  bool fetch = false;    // the data is still with the sender
  bool counted = true;   // in what its sender may have in a UnexpectedQueue
};

}  // namespace regroup::collective
