// The MANIFEST of a checkpoint: what it holds, where each byte lies, and its checksum. Format
// version 1: docs/reference/formats/checkpoint.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/box.h"
#include "proto/world.h"

namespace regroup::checkpoint {

inline constexpr std::uint32_t kVersion = 1, kOldestVersion = 1;
inline constexpr std::uint64_t kBlock = 8 << 20;   // bytes under one CRC32C
inline constexpr std::size_t kLongestName = 4096;  // bytes of a tensor's name; it has one at least
inline constexpr const char* kManifestName = "MANIFEST";

// Bytes of a file with a CRC32C for each kBlock of them; the last block may be short.
struct Range {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::vector<std::uint32_t> crcs;
  bool operator==(const Range&) const = default;
};

struct Piece {
  std::uint32_t file = 0;  // index in Manifest::files
  std::string dataset;     // of that file; for those who open it with HDF5
  Box box;
  Range range;  // the elements of the box, row by row, little-endian
  bool operator==(const Piece&) const = default;
};

struct Tensor {
  std::string name;
  std::string dtype;
  Shape shape;
  std::vector<Piece> pieces;  // fill the tensor, none twice
  bool operator==(const Tensor&) const = default;
};

struct File {
  std::string name;
  std::uint64_t bytes = 0;
  std::vector<Range> rest;  // what lies in no piece: each byte is in one piece or in one of these
  bool operator==(const File&) const = default;
};

struct Manifest {
  proto::Step step = 0;  // the last one applied; the data cursor, too
  std::string job;
  std::uint64_t seed = 0;    // of the job: every random number follows from it
  std::uint32_t shards = 1;  // V
  std::string model;         // digest of what the members declared
  std::string fingerprint;   // numeric environment
  std::vector<File> files;
  std::vector<Tensor> tensors;
  bool operator==(const Manifest&) const = default;
};

// The bytes of the file.
[[nodiscard]] std::string encode(const Manifest& manifest);
// The manifest, which holds what the comments above say. kDataLoss: cut, changed, or of a content
// that cannot be; kInvalidArgument: of a version that this program does not read. `name` is for
// messages.
[[nodiscard]] base::Result<Manifest> parse_manifest(std::span<const std::byte> bytes,
                                                    const std::string& name);
// The same without demanding that pieces fill their tensors: of one writer of several.
[[nodiscard]] base::Result<Manifest> parse_part(std::span<const std::byte> bytes,
                                                const std::string& name);

// One manifest of those of all writers, which agree on everything but files and pieces. kDataLoss
// if they do not, or if a tensor is not whole.
[[nodiscard]] base::Result<Manifest> merge(std::vector<Manifest> parts);

// What is wrong with the content of `manifest`: sizes, names, boxes, bytes covered twice or not at
// all.
[[nodiscard]] base::Status check(const Manifest& manifest, bool tensors_whole = true);

// Why no tensor can have that name; nothing: one can.
[[nodiscard]] std::optional<std::string> why_no_name(const std::string& name);

[[nodiscard]] std::uint64_t bytes_of(const Tensor& tensor);
[[nodiscard]] constexpr std::uint64_t blocks_of(std::uint64_t bytes) {
  return (bytes + kBlock - 1) / kBlock;
}

}  // namespace regroup::checkpoint
