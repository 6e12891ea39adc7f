// The messages between the source and the target agents of a state transfer.
// docs/design/catch_up.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "proto/node_message.h"
#include "shmem/arena.h"

namespace regroup::catchup {

inline constexpr std::uint16_t kTransferVersion = 1;

// Target -> source, the first message: requests part `part` of `parts` parts of the snapshot and,
// with `results`, the results after it.
struct TransferRequest {
  proto::TransferId transfer = 0;
  std::uint32_t part = 0;
  std::uint32_t parts = 1;
  bool results = false;
};
// Source -> target: the length of the snapshot, and the newest result of the source.
struct TransferLength {
  std::uint64_t bytes = 0;
  proto::Step newest = 0;
};
// Source -> target: kSnapshotChunk bytes of the snapshot (step 0) or of a result; the last chunk of
// each may be shorter.
struct TransferChunk {
  proto::Step step = 0;
  std::uint32_t chunk = 0;
  bool last = false;  // the last chunk of this part of the snapshot, or of this result
  std::uint32_t crc = 0;
  std::vector<std::byte> bytes;
};
struct TransferError {  // source -> target: the source cannot continue
  std::string why;
};
using TransferMessage = std::variant<TransferRequest, TransferLength, TransferChunk, TransferError>;

[[nodiscard]] std::vector<std::byte> encode(const TransferMessage& message);
// kDataLoss: it does not verify or has impossible values; kInvalidArgument: another version.
[[nodiscard]] base::Result<TransferMessage> decode_transfer(std::span<const std::byte> payload);

}  // namespace regroup::catchup
