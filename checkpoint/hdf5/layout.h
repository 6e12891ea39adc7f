// Lays out a shard file: HDF5 decides where each piece is.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/checkpoint_store.h"

namespace regroup::checkpoint::hdf5 {

inline constexpr std::uint64_t kPacked = 512;  // pieces of fewer bytes share a dataset
inline constexpr const char* kPackedName = "~packed.";

struct Place {
  std::string dataset;
  std::uint64_t offset = 0;  // of the piece's bytes in the file
};
struct ShardLayout {
  std::vector<Place> places;  // one per piece
  std::uint64_t bytes = 0;    // size of the file
};

// Creates the file `path` with a dataset for each piece, contiguous and allocated, whose bytes are
// not written yet. HDF5 does not open the file again after this.
[[nodiscard]] base::Result<ShardLayout> lay_out(const std::string& path,
                                                std::span<const CheckpointPiece> pieces);

}  // namespace regroup::checkpoint::hdf5
