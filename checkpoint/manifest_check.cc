// Checks the content of a manifest. Readers of checkpoints rely on it and do not check again.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "base/printable.h"
#include "base/status.h"
#include "checkpoint/dtype.h"
#include "checkpoint/manifest.h"

namespace regroup::checkpoint {
namespace {

using base::escaped;
using base::Status;

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 60;

template <class... Args>
Status damaged(fmt::format_string<Args...> format, Args&&... args) {
  return base::data_loss(fmt::format(format, std::forward<Args>(args)...));
}

bool plain_file_name(const std::string& name) {
  constexpr std::string_view kOthers = "._-";
  return !name.empty() && name.size() <= 200 && name[0] != '.' && name != kManifestName &&
         std::ranges::all_of(name, [&](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  kOthers.find(c) != std::string_view::npos;
         });
}

Status check_range(const Range& range, std::uint64_t file_bytes, const char* kind,
                   const std::string& name) {
  if (range.bytes > file_bytes || range.offset > file_bytes - range.bytes)
    return damaged("{} {}: bytes {} to {} of a file of {}", kind, escaped(name), range.offset,
                   range.offset + range.bytes, file_bytes);
  if (range.crcs.size() != blocks_of(range.bytes))
    return damaged("{} {}: {} checksums for {} bytes", kind, escaped(name), range.crcs.size(),
                   range.bytes);
  return {};
}

Status check_files(const Manifest& manifest) {
  std::unordered_set<std::string_view> names;
  for (const File& file : manifest.files) {
    if (!plain_file_name(file.name)) return damaged("file {:?}: not a file name", file.name);
    if (!names.insert(file.name).second) return damaged("file {}: listed twice", file.name);
    if (file.bytes > kMostBytes)
      return damaged("file {}: impossible size, {} bytes", file.name, file.bytes);
    for (const Range& range : file.rest)
      REGROUP_RETURN_IF_ERROR(check_range(range, file.bytes, "file", file.name));
  }
  return {};
}

Status check_piece(const Manifest& manifest, const Tensor& tensor, const Piece& piece,
                   std::uint32_t size) {
  if (piece.file >= manifest.files.size())
    return damaged("tensor {}: its file is not listed", escaped(tensor.name));
  if (piece.box.start.size() != piece.box.count.size())
    return damaged("tensor {}: a piece has a start of {} dimensions and a count of {}",
                   escaped(tensor.name), piece.box.start.size(), piece.box.count.size());
  if (!lies_within(piece.box, tensor.shape))
    return damaged("tensor {}: piece {} reaches beyond the tensor", escaped(tensor.name),
                   to_string(piece.box));
  if (piece.range.bytes != *volume_of(piece.box.count) * size)
    return damaged("tensor {}: piece {} has {} bytes", escaped(tensor.name), to_string(piece.box),
                   piece.range.bytes);
  return check_range(piece.range, manifest.files[piece.file].bytes, "tensor", tensor.name);
}

Status check_tensor(const Manifest& manifest, const Tensor& tensor, bool whole_one) {
  if (const auto why = name_error(tensor.name)) return damaged("{}", *why);
  const auto size = size_of_dtype(tensor.dtype);
  if (!size) return damaged("tensor {}: unknown type {:?}", escaped(tensor.name), tensor.dtype);
  const auto volume = volume_of(tensor.shape);
  if (tensor.shape.size() > kMaxRank || !volume || *volume > kMostBytes / *size)
    return damaged("tensor {}: {} dimensions, or more than {} bytes; at most {} dimensions",
                   escaped(tensor.name), tensor.shape.size(), kMostBytes, kMaxRank);
  for (const Piece& piece : tensor.pieces)
    REGROUP_RETURN_IF_ERROR(check_piece(manifest, tensor, piece, *size));
  if (!whole_one) return {};
  // A single piece that lies within the tensor and has its size is the whole tensor.
  if (tensor.pieces.size() == 1 && tensor.pieces[0].box.count == tensor.shape) return {};
  std::vector<Box> boxes;
  for (const Piece& piece : tensor.pieces) boxes.push_back(piece.box);
  if (const auto why = tiling_error(tensor.shape, boxes))
    return damaged("tensor {}: {}", escaped(tensor.name), *why);
  return {};
}

// Checks that pieces and `rest` cover each byte of each file exactly once.
Status check_coverage(const Manifest& manifest) {
  struct Extent {
    std::uint64_t begin, end;
  };
  std::vector<std::vector<Extent>> covered(manifest.files.size());
  const auto add = [](std::vector<Extent>* to, const Range& range) {
    if (range.bytes > 0) to->push_back({range.offset, range.offset + range.bytes});
  };
  for (const Tensor& tensor : manifest.tensors) {
    for (const Piece& piece : tensor.pieces) add(&covered[piece.file], piece.range);
  }
  for (std::size_t i = 0; i < manifest.files.size(); ++i) {
    const File& file = manifest.files[i];
    for (const Range& range : file.rest) add(&covered[i], range);
    std::ranges::sort(covered[i], {}, &Extent::begin);
    std::uint64_t at = 0;
    for (const Extent& extent : covered[i]) {
      if (extent.begin != at)
        return damaged("file {}: byte {} is covered {}", file.name, std::min(at, extent.begin),
                       extent.begin > at ? "by no tensor" : "twice");
      at = extent.end;
    }
    if (at != file.bytes) return damaged("file {}: byte {} is covered by no tensor", file.name, at);
  }
  return {};
}

}  // namespace

std::optional<std::string> name_error(const std::string& name) {
  if (name.empty()) return "a tensor has an empty name";
  if (name.size() <= kLongestName) return std::nullopt;
  return fmt::format("tensor {}...: name of {} bytes, expected at most {}",
                     escaped(name.substr(0, 40)), name.size(), kLongestName);
}

Status check(const Manifest& manifest, bool tensors_whole) {
  REGROUP_RETURN_IF_ERROR(check_files(manifest));
  if (manifest.shards == 0 || manifest.shards > proto::kMaxShards)
    return damaged("impossible number of logical shards, {}", manifest.shards);
  if (manifest.content == Content::kTableChanges && manifest.base >= manifest.step)
    return damaged("changes since step {} in step {}", manifest.base, manifest.step);
  std::unordered_set<std::string_view> names;
  for (const Tensor& tensor : manifest.tensors) {
    REGROUP_RETURN_IF_ERROR(check_tensor(manifest, tensor, tensors_whole));
    if (!names.insert(tensor.name).second)
      return damaged("tensor {}: listed twice", escaped(tensor.name));
  }
  return check_coverage(manifest);
}

bool has_tables(const Manifest& manifest) { return manifest.content != Content::kWorld; }

std::uint64_t bytes_of_files(const Manifest& manifest) {
  std::uint64_t sum = 0;
  for (const File& file : manifest.files) sum += file.bytes;
  return sum;
}

std::uint64_t bytes_of(const Tensor& tensor) {
  return volume_of(tensor.shape).value_or(0) * size_of_dtype(tensor.dtype).value_or(0);
}

}  // namespace regroup::checkpoint
