// A virtual dataset for each tensor, mapped to the pieces in the shard files. HDF5 maps no scalar and nothing
// empty: those are copied.
#include "checkpoint/hdf5/view.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "checkpoint/dtype.h"
#include "checkpoint/file_io.h"
#include "checkpoint/hdf5/layout.h"
#include "checkpoint/hdf5/library.h"
#include "core/crc32c.h"

namespace regroup::checkpoint::hdf5 {
namespace {

using core::Status;

constexpr std::size_t kViewStride = 1 << 20;
constexpr hsize_t kNoAlignment = ~hsize_t{0};

std::vector<hsize_t> dims_of(const Shape& shape) { return {shape.begin(), shape.end()}; }

SpaceHandle space_of(const Shape& shape) {
  return SpaceHandle(H5Screate_simple(static_cast<int>(shape.size()), dims_of(shape).data(), nullptr));
}

void select(const SpaceHandle& space, const Box& box) {
  H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, dims_of(box.start).data(), nullptr,
                      dims_of(box.count).data(), nullptr);
}

// Where each dataset of packed pieces begins and ends.
class Packs {
 public:
  explicit Packs(const Manifest& manifest) {
    for (const Tensor& tensor : manifest.tensors) {
      for (const Piece& piece : tensor.pieces) {
        if (!packed(piece)) continue;
        auto& extent = extents_.try_emplace({piece.file, piece.dataset}, piece.range.offset, 0).first->second;
        extent.first = std::min(extent.first, piece.range.offset);
        extent.second = std::max(extent.second, piece.range.offset + piece.range.bytes);
      }
    }
  }
  static bool packed(const Piece& piece) { return piece.dataset.starts_with(kPackedName); }
  // The elements of the piece's dataset, those of the piece selected.
  [[nodiscard]] SpaceHandle source(const Piece& piece, std::uint64_t size) const {
    if (!packed(piece)) return space_of(piece.box.count);
    const auto& [begin, end] = extents_.at({piece.file, piece.dataset});
    SpaceHandle space = space_of({(end - begin) / size});
    select(space, {{(piece.range.offset - begin) / size}, {piece.range.bytes / size}});
    return space;
  }

 private:
  std::map<std::pair<std::uint32_t, std::string>, std::pair<std::uint64_t, std::uint64_t>> extents_;
};

Status add_virtual(const FileHandle& view, const Manifest& manifest, const Tensor& tensor,
                   const Packs& packs) {
  bool raw = false;
  const TypeHandle type = stored_type(tensor.dtype, &raw);
  const PropertyHandle creation(H5Pcreate(H5P_DATASET_CREATE));
  H5Pset_obj_track_times(creation.get(), false);
  for (const Piece& piece : tensor.pieces) {
    if (piece.range.bytes == 0) continue;
    const SpaceHandle target = space_of(tensor.shape);
    select(target, piece.box);
    const SpaceHandle source = packs.source(piece, *size_of_dtype(tensor.dtype));
    if (H5Pset_virtual(creation.get(), target.get(), manifest.files[piece.file].name.c_str(),
                       piece.dataset.c_str(), source.get()) < 0)
      return failed("H5Pset_virtual", tensor.name);
  }
  const SpaceHandle space = space_of(tensor.shape);
  const DatasetHandle dataset(H5Dcreate2(view.get(), link_name(tensor.name).c_str(), type.get(), space.get(),
                                         H5P_DEFAULT, creation.get(), H5P_DEFAULT));
  if (!dataset.valid()) return failed("H5Dcreate", tensor.name);
  return raw ? tell_dtype(dataset.get(), tensor.dtype) : Status();
}

Status add_copy(const FileHandle& view, const std::string& folder, const Manifest& manifest,
                const Tensor& tensor) {
  bool raw = false;
  const TypeHandle type = stored_type(tensor.dtype, &raw);
  const SpaceHandle space =
      tensor.shape.empty() ? SpaceHandle(H5Screate(H5S_SCALAR)) : space_of(tensor.shape);
  const PropertyHandle creation(H5Pcreate(H5P_DATASET_CREATE));
  H5Pset_obj_track_times(creation.get(), false);
  const DatasetHandle dataset(H5Dcreate2(view.get(), link_name(tensor.name).c_str(), type.get(), space.get(),
                                         H5P_DEFAULT, creation.get(), H5P_DEFAULT));
  if (!dataset.valid()) return failed("H5Dcreate", tensor.name);
  if (raw) REGROUP_RETURN_IF_ERROR(tell_dtype(dataset.get(), tensor.dtype));
  for (const Piece& piece : tensor.pieces) {
    if (piece.range.bytes == 0) continue;
    const std::string path = folder + "/" + manifest.files[piece.file].name;
    auto file = open_file(path, O_RDONLY);
    if (!file.ok()) return file.status();
    std::vector<std::byte> element(piece.range.bytes);
    REGROUP_RETURN_IF_ERROR(read_at(file->get(), piece.range.offset, element, path));
    if (core::crc32c(element) != piece.range.crcs[0])
      return {core::Code::kDataLoss,
              fmt::format("{}: tensor {} is not as it was written", path, tensor.name)};
    if (H5Dwrite(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, element.data()) < 0)
      return failed("H5Dwrite", tensor.name);
  }
  return {};
}

Status write_view(const std::string& path, const std::string& folder, const Manifest& manifest) {
  auto created = create_file(path, H5F_LIBVER_V110, kNoAlignment);  // the first with virtual datasets
  if (!created.ok()) return created.status();
  FileHandle& view = *created;
  const Packs packs(manifest);
  for (const Tensor& tensor : manifest.tensors) {
    const bool mapped = !tensor.shape.empty() && bytes_of(tensor) > 0;
    REGROUP_RETURN_IF_ERROR(mapped ? add_virtual(view, manifest, tensor, packs)
                                   : add_copy(view, folder, manifest, tensor));
  }
  return view.close() ? Status() : failed("H5Fclose", path);
}

core::Result<Range> sum(int fd, const std::string& path) {
  const auto bytes = size_of(fd, path);
  if (!bytes.ok()) return bytes.status();
  Range range{0, *bytes, {}};
  std::vector<std::byte> buffer(kViewStride);
  for (std::uint64_t at = 0; at < *bytes; at += kViewStride) {
    const auto part = std::span(buffer).first(std::min<std::uint64_t>(kViewStride, *bytes - at));
    REGROUP_RETURN_IF_ERROR(read_at(fd, at, part, path));
    if (at % kBlock == 0) range.crcs.push_back(0);
    range.crcs.back() = core::crc32c(part, range.crcs.back());
  }
  return range;
}

}  // namespace

Status add_view(const std::string& folder, Manifest* manifest) {
  const std::string path = fmt::format("{}/{}", folder, kViewName);
  REGROUP_RETURN_IF_ERROR(write_view(path, folder, *manifest));
  auto file = open_file(path, O_RDWR);
  if (!file.ok()) return file.status();
  REGROUP_RETURN_IF_ERROR(sync(file->get(), path));
  auto range = sum(file->get(), path);
  if (!range.ok()) return range.status();
  manifest->files.push_back({kViewName, range->bytes, {std::move(*range)}});
  return {};
}

}  // namespace regroup::checkpoint::hdf5
