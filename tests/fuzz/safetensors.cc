// Any bytes as a safetensors file, and as one whose length of the header is made good: refused with
// a reason, or tensors of which a checkpoint can be written, and which are the same when they are
// exported and read again.
#include "tools/checkpoint/safetensors.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tests/fuzz/imported.h"

using namespace regroup;

namespace {

void require_same_again(const std::vector<checkpoint::CheckpointPiece>& pieces) {
  checkpoint::Manifest manifest;
  std::string data;
  for (const checkpoint::CheckpointPiece& piece : pieces) {
    manifest.tensors.push_back({piece.name, piece.dtype, piece.shape, {}});
    data.append(reinterpret_cast<const char*>(piece.bytes.data()), piece.bytes.size());
  }
  const auto header = checkpoint_tool::safetensors_header(manifest);
  fuzz::require(header.ok());
  const std::string file = *header + data;
  const auto again = checkpoint_tool::read_safetensors(std::as_bytes(std::span(file)), "again");
  fuzz::require(again.ok() && std::ranges::equal(*again, pieces, [](const auto& a, const auto& b) {
                  return a.name == b.name && a.dtype == b.dtype && a.shape == b.shape &&
                         std::ranges::equal(a.bytes, b.bytes);
                }));
}

void one(std::span<const std::byte> file) {
  const auto pieces = checkpoint_tool::read_safetensors(file, "a.safetensors");
  if (!pieces.ok()) return fuzz::require(!pieces.status().message().empty());
  fuzz::require_writable(*pieces, file);
  require_same_again(*pieces);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::uint64_t length = 0;
  one(std::as_bytes(std::span(data, size)));
  if (size < sizeof length) return 0;
  std::string file(reinterpret_cast<const char*>(data), size);
  length = std::min(file.find_last_of('}') + 1, size) - std::min<std::size_t>(sizeof length, size);
  if (length > size) return 0;
  std::memcpy(file.data(), &length, sizeof length);
  one(std::as_bytes(std::span(file)));
  return 0;
}
