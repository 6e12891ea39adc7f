// Where HDF5 puts the pieces of a shard file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/checkpoint_store.h"

namespace regroup::checkpoint::hdf5 {

inline constexpr std::uint64_t kPacked = 512;  // pieces below so many bytes share a dataset
inline constexpr const char* kPackedName = "~packed.";

struct Place {
  std::string dataset;
  std::uint64_t offset = 0;  // of the piece's bytes in the file
};
struct ShardLayout {
  std::vector<Place> places;  // of each piece
  std::uint64_t bytes = 0;    // of the file
};

// Makes the file `path` with a dataset for each piece, contiguous and allocated, and with no bytes
// in it. HDF5 does not open the file again after this.
[[nodiscard]] base::Result<ShardLayout> lay_out(const std::string& path,
                                                std::span<const SnapshotPiece> pieces);

}  // namespace regroup::checkpoint::hdf5
