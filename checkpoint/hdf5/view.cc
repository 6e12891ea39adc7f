// A virtual dataset for each tensor, mapped to the pieces in the shard files. HDF5 cannot map
// scalars and empty tensors, and takes seven times as long for a virtual dataset as for a plain
// one. So tensors no larger than the description of a mapping are copied; and if there are many
// tensors, those of one piece become links to the shard's datasets.
#include "checkpoint/hdf5/view.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/crc32c.h"
#include "base/fd.h"
#include "base/printable.h"
#include "checkpoint/dtype.h"
#include "checkpoint/file_io.h"
#include "checkpoint/hdf5/layout.h"
#include "checkpoint/hdf5/library.h"

namespace regroup::checkpoint::hdf5 {
namespace {

using base::Status;

constexpr std::size_t kViewStride = 1 << 20;
constexpr hsize_t kNoAlignment = ~hsize_t{0};
constexpr std::size_t kReadTogether = 64 << 10;
constexpr std::size_t kMostVirtual = 2000;

void select(const SpaceHandle& space, const Box& box) {
  H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, dims_of(box.start).data(), nullptr,
                      dims_of(box.count).data(), nullptr);
}

bool packed(const Piece& piece) { return piece.dataset.starts_with(kPackedName); }

class View {
 public:
  View(const FileHandle& file, std::string folder, const Packs& packs, const Manifest& manifest)
      : file_(file),
        folder_(std::move(folder)),
        manifest_(manifest),
        packs_(packs),
        creation_(H5Pcreate(H5P_DATASET_CREATE)) {
    H5Pset_obj_track_times(creation_.get(), false);
    H5Pset_fill_time(creation_.get(), H5D_FILL_TIME_NEVER);
  }

  Status add(const Tensor& tensor) {
    if (tensor.shape.empty() || bytes_of(tensor) < kPacked) return add_copy(tensor);
    const bool linked = tensor.pieces.size() == 1 && !packed(tensor.pieces[0]);
    if (linked && virtual_ >= kMostVirtual) return add_link(tensor);
    ++virtual_;
    return add_virtual(tensor);
  }

 private:
  Status add_virtual(const Tensor& tensor) {
    H5Pset_layout(creation_.get(), H5D_CONTIGUOUS);  // drops the mappings of the previous tensor
    for (const Piece& piece : tensor.pieces) {
      if (piece.range.bytes == 0) continue;
      const SpaceHandle target = space_of(tensor.shape);
      select(target, piece.box);
      const SpaceHandle source = source_of(piece, *size_of_dtype(tensor.dtype));
      if (H5Pset_virtual(creation_.get(), target.get(), file_of(piece).c_str(),
                         piece.dataset.c_str(), source.get()) < 0)
        return failed("H5Pset_virtual", base::escaped(tensor.name));
    }
    return add_dataset(tensor).status();
  }

  Status add_link(const Tensor& tensor) {
    const Piece& piece = tensor.pieces[0];
    if (H5Lcreate_external(file_of(piece).c_str(), piece.dataset.c_str(), file_.get(),
                           link_name(tensor.name).c_str(), H5P_DEFAULT, H5P_DEFAULT) < 0)
      return failed("H5Lcreate_external", base::escaped(tensor.name));
    return {};
  }

  Status add_copy(const Tensor& tensor) {
    const std::uint64_t bytes = bytes_of(tensor);
    H5Pset_layout(creation_.get(), bytes > 0 && bytes < kPacked ? H5D_COMPACT : H5D_CONTIGUOUS);
    REGROUP_ASSIGN_OR_RETURN(const auto dataset, add_dataset(tensor));
    elements_.resize(bytes);  // the pieces cover all of it
    for (const Piece& piece : tensor.pieces)
      REGROUP_RETURN_IF_ERROR(copy(tensor, piece, elements_));
    if (bytes > 0 && H5Dwrite(dataset.get(), types_.of(tensor.dtype), H5S_ALL, H5S_ALL, H5P_DEFAULT,
                              elements_.data()) < 0)
      return failed("H5Dwrite", base::escaped(tensor.name));
    return {};
  }

  base::Result<DatasetHandle> add_dataset(const Tensor& tensor) {
    DatasetHandle dataset(H5Dcreate2(file_.get(), link_name(tensor.name).c_str(),
                                     types_.of(tensor.dtype), space(tensor.shape), H5P_DEFAULT,
                                     creation_.get(), H5P_DEFAULT));
    if (!dataset.valid()) return failed("H5Dcreate", base::escaped(tensor.name));
    REGROUP_RETURN_IF_ERROR(types_.annotate(tensor.dtype, dataset.get()));
    return dataset;
  }

  // Copies the elements of a piece to their places in `out`, which holds the whole tensor.
  Status copy(const Tensor& tensor, const Piece& piece, std::span<std::byte> out) {
    if (piece.range.bytes == 0) return {};
    const std::string path = folder_ + "/" + file_of(piece);
    base::Fd& file = files_.try_emplace(piece.file).first->second;
    if (!file.valid()) {
      REGROUP_ASSIGN_OR_RETURN(file, open_file(path, O_RDONLY));
    }
    const Range& range = piece.range;
    if (piece.file != read_file_ || range.offset < read_at_ ||
        range.offset + range.bytes > read_at_ + read_.size()) {
      read_.resize(std::min(std::max<std::uint64_t>(range.bytes, kReadTogether),
                            manifest_.files[piece.file].bytes - range.offset));
      REGROUP_RETURN_IF_ERROR(read_at(file.get(), range.offset, read_, path));
      read_file_ = piece.file;
      read_at_ = range.offset;
    }
    const auto elements = std::span(read_).subspan(range.offset - read_at_, range.bytes);
    if (base::crc32c(elements) != range.crcs[0])
      return base::data_loss(fmt::format("{}: tensor {} differs from what was written", path,
                                         base::escaped(tensor.name)));
    if (tensor.pieces.size() == 1) {
      std::ranges::copy(elements, out.begin());
      return {};
    }
    const std::uint64_t size = *size_of_dtype(tensor.dtype);
    for (const Run& run : runs_of(piece.box, piece.box, whole(tensor.shape)))
      std::ranges::copy(elements.subspan(run.from * size, run.elements * size),
                        out.begin() + static_cast<std::ptrdiff_t>(run.to * size));
    return {};
  }

  // Small tensors have few shapes.
  hid_t space(const Shape& shape) {
    if (!space_ || space_->first != shape) space_.emplace(shape, space_of(shape));
    return space_->second.get();
  }

  // The data space of the piece's dataset, with the elements of the piece selected.
  [[nodiscard]] SpaceHandle source_of(const Piece& piece, std::uint64_t size) const {
    if (!packed(piece)) return space_of(piece.box.count);
    const auto& [begin, end] = packs_.at({file_of(piece), piece.dataset});
    SpaceHandle space = space_of({(end - begin) / size});
    select(space, {{(piece.range.offset - begin) / size}, {piece.range.bytes / size}});
    return space;
  }
  [[nodiscard]] const std::string& file_of(const Piece& piece) const {
    return manifest_.files[piece.file].name;
  }

  const FileHandle& file_;
  const std::string folder_;
  const Manifest& manifest_;
  const Packs& packs_;
  PropertyHandle creation_;
  StoredTypes types_;
  std::optional<std::pair<Shape, SpaceHandle>> space_;
  std::map<std::uint32_t, base::Fd> files_;
  std::vector<std::byte> read_;  // bytes of file read_file_ from offset read_at_ on
  std::uint64_t read_at_ = 0;
  std::uint32_t read_file_ = 0;
  std::vector<std::byte> elements_;  // of the tensor being copied
  std::size_t virtual_ = 0;
};

Status write_view(const std::string& path, const std::string& folder, const Packs& packs,
                  const Manifest& manifest) {
  // V110 is the first format with virtual datasets. Without any, the oldest format takes half the
  // time, but has no checksums.
  const bool many = manifest.tensors.size() > kMostVirtual;
  REGROUP_ASSIGN_OR_RETURN(
      auto created, create_file(path, many ? H5F_LIBVER_EARLIEST : H5F_LIBVER_V110, kNoAlignment));
  View view(created, folder, packs, manifest);
  for (const Tensor& tensor : manifest.tensors) REGROUP_RETURN_IF_ERROR(view.add(tensor));
  return created.close() ? Status() : failed("H5Fclose", path);
}

base::Result<Range> sum(int fd, const std::string& path) {
  REGROUP_ASSIGN_OR_RETURN(const auto bytes, size_of(fd, path));
  Range range{0, bytes, {}};
  std::vector<std::byte> buffer(kViewStride);
  for (std::uint64_t at = 0; at < bytes; at += kViewStride) {
    const auto part = std::span(buffer).first(std::min<std::uint64_t>(kViewStride, bytes - at));
    REGROUP_RETURN_IF_ERROR(read_at(fd, at, part, path));
    if (at % kBlock == 0) range.crcs.push_back(0);
    range.crcs.back() = base::crc32c(part, range.crcs.back());
  }
  return range;
}

}  // namespace

Packs packs_of(std::span<const Manifest> parts) {
  Packs out;
  for (const Manifest& part : parts) {
    for (const Tensor& tensor : part.tensors) {
      for (const Piece& piece : tensor.pieces) {
        if (!packed(piece) || piece.file >= part.files.size()) continue;  // merge() refuses these
        const Range& range = piece.range;
        auto& [begin, end] =
            out.try_emplace({part.files.at(piece.file).name, piece.dataset}, range.offset, 0)
                .first->second;
        begin = std::min(begin, range.offset);
        end = std::max(end, range.offset + range.bytes);
      }
    }
  }
  return out;
}

Status add_view(const std::string& folder, const Packs& packs, Manifest* manifest) {
  const std::string path = fmt::format("{}/{}", folder, kViewName);
  REGROUP_RETURN_IF_ERROR(write_view(path, folder, packs, *manifest));
  REGROUP_ASSIGN_OR_RETURN(auto file, open_file(path, O_RDWR));
  REGROUP_RETURN_IF_ERROR(sync(file.get(), path));
  REGROUP_ASSIGN_OR_RETURN(auto range, sum(file.get(), path));
  manifest->files.push_back({kViewName, range.bytes, {std::move(range)}});
  return {};
}

}  // namespace regroup::checkpoint::hdf5
