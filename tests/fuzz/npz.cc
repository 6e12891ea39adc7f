// Any bytes as a file of numpy.savez(), and as one array of it, which a CRC-32 guards in the archive: refused
// with a reason, or tensors of which a checkpoint can be written.
#include "tools/checkpoint/npz.h"

#include <cstdint>

#include "tests/fuzz/imported.h"

using namespace regroup;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  const auto pieces = checkpoint_tool::read_npz(file, "a.npz");
  if (pieces.ok()) fuzz::require_writable(*pieces, file);
  if (!pieces.ok()) fuzz::require(!pieces.status().message().empty());
  const auto piece = checkpoint_tool::read_npy("a", file);
  if (piece.ok()) fuzz::require_writable({*piece}, file);
  if (!piece.ok()) fuzz::require(!piece.status().message().empty());
  return 0;
}
