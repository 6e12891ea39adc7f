// Creates datasets and asks HDF5 for their offsets. Uses format V18, because some metadata of the
// newer format that HDF5 1.10 writes by default has no checksums.
#include "checkpoint/hdf5/layout.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <map>
#include <unordered_map>

#include "base/printable.h"
#include "checkpoint/dtype.h"
#include "checkpoint/file_io.h"
#include "checkpoint/hdf5/library.h"

namespace regroup::checkpoint::hdf5 {
namespace {

using base::Result;
using base::Status;

constexpr hsize_t kAlignFrom = 64 << 10;

// Creates the datasets of one file: contiguous, allocated early, not filled.
class Datasets {
 public:
  explicit Datasets(const FileHandle& file)
      : file_(file), creation_(H5Pcreate(H5P_DATASET_CREATE)) {
    H5Pset_layout(creation_.get(), H5D_CONTIGUOUS);
    H5Pset_alloc_time(creation_.get(), H5D_ALLOC_TIME_EARLY);
    H5Pset_fill_time(creation_.get(), H5D_FILL_TIME_NEVER);
    H5Pset_obj_track_times(creation_.get(), false);  // equal states give equal files
  }
  // The offset of the dataset's bytes; 0 if it has none.
  Result<std::uint64_t> add(const std::string& name, const std::string& dtype, const Shape& shape) {
    const SpaceHandle space = space_of(shape);
    const DatasetHandle dataset(H5Dcreate2(file_.get(), name.c_str(), types_.of(dtype), space.get(),
                                           H5P_DEFAULT, creation_.get(), H5P_DEFAULT));
    if (!dataset.valid()) return failed("H5Dcreate", base::escaped(name));
    REGROUP_RETURN_IF_ERROR(types_.annotate(dtype, dataset.get()));
    if (volume_of(shape).value_or(0) == 0) return std::uint64_t{0};
    const haddr_t offset = H5Dget_offset(dataset.get());
    if (offset == HADDR_UNDEF) return failed("H5Dget_offset", base::escaped(name));
    return static_cast<std::uint64_t>(offset);
  }

 private:
  const FileHandle& file_;
  PropertyHandle creation_;
  StoredTypes types_;
};

// Small pieces of one type, packed into one dataset.
struct Pack {
  std::vector<std::size_t> pieces;
  std::uint64_t elements = 0;
};

Status add_pack(Datasets& datasets, const std::string& dtype, const Pack& pack,
                std::span<const CheckpointPiece> pieces, std::vector<Place>* places) {
  const std::string name = kPackedName + dtype;
  REGROUP_ASSIGN_OR_RETURN(auto offset, datasets.add(name, dtype, {pack.elements}));
  for (const std::size_t i : pack.pieces) {
    (*places)[i] = {name, offset};
    offset += pieces[i].bytes.size();
  }
  return {};
}

}  // namespace

Result<ShardLayout> lay_out(const std::string& path, std::span<const CheckpointPiece> pieces) {
  REGROUP_ASSIGN_OR_RETURN(auto created, create_file(path, H5F_LIBVER_V18, kAlignFrom));
  FileHandle& file = created;
  Datasets datasets(file);
  ShardLayout out;
  out.places.resize(pieces.size());
  std::map<std::string, Pack> packs;                    // by type
  std::unordered_map<std::string, unsigned> same_name;  // number of pieces of each tensor
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const CheckpointPiece& piece = pieces[i];
    if (!piece.bytes.empty() && piece.bytes.size() < kPacked) {
      packs[piece.dtype].pieces.push_back(i);
      packs[piece.dtype].elements += piece.bytes.size() / *size_of_dtype(piece.dtype);
      continue;
    }
    const unsigned nth = same_name[piece.name]++;
    const std::string name = link_name(piece.name) + (nth == 0 ? "" : fmt::format("~{}", nth));
    REGROUP_ASSIGN_OR_RETURN(const auto offset, datasets.add(name, piece.dtype, piece.box.count));
    out.places[i] = {name, offset};
  }
  for (const auto& [dtype, pack] : packs)
    REGROUP_RETURN_IF_ERROR(add_pack(datasets, dtype, pack, pieces, &out.places));
  if (!file.close()) return failed("H5Fclose", path);
  REGROUP_ASSIGN_OR_RETURN(auto fd, open_file(path, O_RDONLY));
  REGROUP_ASSIGN_OR_RETURN(const auto bytes, size_of(fd.get(), path));
  out.bytes = bytes;
  return out;
}

}  // namespace regroup::checkpoint::hdf5
