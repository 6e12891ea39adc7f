// The MANIFEST of a checkpoint: its tensors, the place of each byte, and the checksums. Format
// versions 1 and 2: docs/reference/formats/checkpoint.md.
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

inline constexpr std::uint32_t kVersion = 2, kOldestVersion = 1;
inline constexpr std::uint64_t kBlock = 8 << 20;   // bytes under one CRC32C
inline constexpr std::size_t kLongestName = 4096;  // bytes of a tensor's name, which is not empty
inline constexpr const char* kManifestName = "MANIFEST";

// A range of bytes of a file, with a CRC32C for each kBlock bytes; the last block may be shorter.
struct Range {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::vector<std::uint32_t> crcs;
  bool operator==(const Range&) const = default;
};

struct Piece {
  std::uint32_t file = 0;  // index in Manifest::files
  std::string dataset;     // its dataset in that file, for readers that use HDF5
  Box box;
  Range range;  // the elements of the box, row by row, little-endian
  bool operator==(const Piece&) const = default;
};

struct Tensor {
  std::string name;
  std::string dtype;
  Shape shape;
  std::vector<Piece> pieces;  // cover each element of the tensor exactly once
  bool operator==(const Tensor&) const = default;
};

struct File {
  std::string name;
  std::uint64_t bytes = 0;
  std::vector<Range> rest;  // the bytes that belong to no piece
  bool operator==(const File&) const = default;
};

// What a checkpoint has. The manifest of a World's state has format version 1, that of tables
// version 2, so that no program takes them for a World's state that does not know of tables.
// kTableChanges: rows of tables that changed since the checkpoint `base`, without which it is not
// whole.
enum class Content : std::uint8_t { kWorld, kTables, kTableChanges };

struct Manifest {
  // The last step applied; also the position in the data. Of tables: the number of the checkpoint.
  proto::Step step = 0;
  std::string job;
  std::uint64_t seed = 0;    // the job's seed, from which all its random numbers derive
  std::uint32_t shards = 1;  // V
  std::string model;         // digest of what the members declared
  std::string fingerprint;   // numeric environment
  std::vector<File> files;
  std::vector<Tensor> tensors;
  Content content = Content::kWorld;
  proto::Step base = 0;  // of kTableChanges: below `step`, in the same directory; else 0
  bool operator==(const Manifest&) const = default;
};

// Returns the bytes of the MANIFEST file.
[[nodiscard]] std::string encode(const Manifest& manifest);
// Parses and checks a manifest. kDataLoss: it is cut, changed or impossible. kInvalidArgument: it
// has a version that this program does not read. `name` is for messages.
[[nodiscard]] base::Result<Manifest> parse_manifest(std::span<const std::byte> bytes,
                                                    const std::string& name);
// As parse_manifest(), for the manifest of one of several writers: pieces need not cover tensors.
[[nodiscard]] base::Result<Manifest> parse_part(std::span<const std::byte> bytes,
                                                const std::string& name);

// Merges the manifests of all writers, which must agree on everything except files and pieces.
// kDataLoss if they do not, or if a tensor is not complete.
[[nodiscard]] base::Result<Manifest> merge(std::vector<Manifest> parts);

// Checks sizes, names and boxes, and that each byte of each file is covered exactly once. With
// `tensors_whole`, also that pieces cover their tensors.
[[nodiscard]] base::Status check(const Manifest& manifest, bool tensors_whole = true);

// Why a tensor cannot have the name `name`; empty if it can.
[[nodiscard]] std::optional<std::string> name_error(const std::string& name);

// True if it has tables, or changes of tables.
[[nodiscard]] bool has_tables(const Manifest& manifest);
[[nodiscard]] std::uint64_t bytes_of(const Tensor& tensor);
[[nodiscard]] std::uint64_t bytes_of_files(const Manifest& manifest);
[[nodiscard]] constexpr std::uint64_t blocks_of(std::uint64_t bytes) {
  return (bytes + kBlock - 1) / kBlock;
}

}  // namespace regroup::checkpoint
