// The active messages between the members of a generation, and the key by which a receiver matches
// them. Plain data; the bytes of MessageHeader are the wire format.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "collective/signature.h"

namespace regroup::collective::ucx {

// Identifies a communicator within a generation.
struct CommunicatorId {
  std::uint64_t instance = 0;  // CommunicatorOptions::instance
  std::uint32_t group = 0;     // number of the group that split() made; 0: not made by split()
  std::uint32_t channel = 0;   // CommunicatorOptions::channel

  auto operator<=>(const CommunicatorId&) const = default;
};

enum class MessageKind : std::uint8_t {
  kProbe,           // straggler probe: says in which operation the sender is
  kData,            // data of a collective operation
  kReadyToReceive,  // the receiver of send() has a buffer of this size
  kPointToPoint,    // data of send()
  kAck,             // acknowledges one message
  kHandshake,       // the first message of a connection; `number` is the sender's nonce
  kFailure,         // all operations of the sender have failed; the data says why
  kNote,            // from the carrier of the sender to that of the receiver (collective/carrier.h)
};

// The receiver takes messages with equal keys in the order in which they were sent.
struct MatchKey {
  CommunicatorId communicator;
  MessageKind kind = MessageKind::kData;
  // Number of the collective operation, or of the point-to-point message between this pair.
  std::uint64_t number = 0;
  std::uint64_t tag = 0;  // distinguishes the messages of one operation (MessageTag::pack)
  std::int32_t from = 0;  // rank of the sender in the World

  auto operator<=>(const MatchKey&) const = default;
};

// Precedes the data on the wire, with its layout in memory: all members run the same program on the
// same architecture.
struct MessageHeader {
  MatchKey key;
  CollectiveSignature signature;  // the sender's; lets the receiver detect a mismatch
  // Number of messages that the sender has received from this receiver since its previous header
  // and that need an ack in a header.
  std::uint64_t acks = 0;
  std::uint64_t nonce = 0;  // the receiver's in this generation; known only to members
};

// Parses the header of a message with `bytes` of data that arrived at the member with `nonce` in a
// World of `ranks` members. Empty if no member sends such a header: any process that can connect to
// the port may have sent it.
[[nodiscard]] std::optional<MessageHeader> parse_header(std::span<const std::byte> header,
                                                        std::size_t bytes, std::size_t ranks,
                                                        std::uint64_t nonce);

// A message that has arrived. Its data belongs to UCX until the receiver releases it, or to the
// message if a carrier has brought it.
struct ActiveMessage {
  MessageHeader header;
  std::size_t bytes = 0;
  void* data = nullptr;        // the data; with `fetch`: UCX's descriptor of the data
  bool fetch = false;          // UCX's rendezvous protocol: the data is still at the sender
  std::byte* owned = nullptr;  // the block that has the data, if it belongs to the message
  bool counted = true;         // counts against the sender's limit in the UnexpectedQueue
};

}  // namespace regroup::collective::ucx
