// Converts between transfer_messages.h and FlatBuffers (transfer.fbs).
#include "membership/catchup/transfer_messages.h"

#include <fmt/format.h>

#include <utility>

#include "membership/catchup/transfer_generated.h"

namespace regroup::catchup {
namespace {

using base::Result;

constexpr std::uint32_t kMostParts = 64;

fb::TransferRequestT table(const TransferRequest& m) {
  fb::TransferRequestT t;
  t.transfer = m.transfer, t.part = m.part, t.parts = m.parts, t.results = m.results;
  return t;
}
fb::TransferLengthT table(const TransferLength& m) {
  fb::TransferLengthT t;
  t.bytes = m.bytes, t.newest = m.newest;
  return t;
}
fb::TransferChunkT table(const TransferChunk& m) {
  fb::TransferChunkT t;
  t.step = m.step, t.chunk = m.chunk, t.last = m.last, t.crc = m.crc;
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(m.bytes.data());
  t.bytes.assign(bytes, bytes + m.bytes.size());
  return t;
}
fb::TransferErrorT table(const TransferError& m) {
  fb::TransferErrorT t;
  t.why = m.why;
  return t;
}

Result<TransferMessage> plain(const fb::TransferRequestT& t) {
  if (t.parts == 0 || t.parts > kMostParts || t.part >= t.parts)
    return base::data_loss(fmt::format("TransferRequest: part {} of {}", t.part, t.parts));
  return TransferMessage(TransferRequest{t.transfer, t.part, t.parts, t.results});
}
Result<TransferMessage> plain(const fb::TransferLengthT& t) {
  return TransferMessage(TransferLength{t.bytes, t.newest});
}
Result<TransferMessage> plain(const fb::TransferChunkT& t) {
  if (t.bytes.size() > shmem::kSnapshotChunk)
    return base::data_loss(fmt::format("TransferChunk: {} bytes", t.bytes.size()));
  const auto* bytes = reinterpret_cast<const std::byte*>(t.bytes.data());
  return TransferMessage(
      TransferChunk{t.step, t.chunk, t.last, t.crc, {bytes, bytes + t.bytes.size()}});
}
Result<TransferMessage> plain(const fb::TransferErrorT& t) {
  return TransferMessage(TransferError{t.why});
}

template <class Table>
Result<TransferMessage> body(const fb::TransferBodyUnion& in) {
  // The verifier lets a type without its table pass.
  if (in.value == nullptr) return base::data_loss("state transfer message: no body");
  return plain(*static_cast<const Table*>(in.value));
}

}  // namespace

std::vector<std::byte> encode(const TransferMessage& message) {
  fb::TransferMessageT wire;
  wire.version = kTransferVersion;
  std::visit([&](const auto& body) { wire.body.Set(table(body)); }, message);
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(fb::TransferMessage::Pack(builder, &wire), fb::TransferMessageIdentifier());
  const auto* bytes = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
  return {bytes, bytes + builder.GetSize()};
}

Result<TransferMessage> decode_transfer(std::span<const std::byte> payload) {
  const std::vector<std::byte> aligned(payload.begin(),
                                       payload.end());  // aligned, since accessors read in place
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(aligned.data());
  flatbuffers::Verifier verifier(bytes, aligned.size());
  if (!fb::VerifyTransferMessageBuffer(verifier)) {
    return base::data_loss(
        fmt::format("state transfer message of {} bytes does not verify", payload.size()));
  }
  fb::TransferMessageT wire;
  fb::GetTransferMessage(bytes)->UnPackTo(&wire);
  if (wire.version != kTransferVersion) {
    return base::invalid_argument(
        fmt::format("state transfer: the peer speaks version {}, expected version {}", wire.version,
                    kTransferVersion));
  }
  switch (wire.body.type) {
    case fb::TransferBody::TransferRequest:
      return body<fb::TransferRequestT>(wire.body);
    case fb::TransferBody::TransferLength:
      return body<fb::TransferLengthT>(wire.body);
    case fb::TransferBody::TransferChunk:
      return body<fb::TransferChunkT>(wire.body);
    case fb::TransferBody::TransferError:
      return body<fb::TransferErrorT>(wire.body);
    case fb::TransferBody::NONE:
      break;
  }
  return base::invalid_argument("state transfer message: unknown body");
}

}  // namespace regroup::catchup
