// A writer's part: HDF5 lays out the file, then we write its bytes and a manifest of this part.
// commit() merges the manifests of all parts.
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/printable.h"
#include "base/status.h"
#include "checkpoint/directory.h"
#include "checkpoint/dtype.h"
#include "checkpoint/file_io.h"
#include "checkpoint/hdf5/factory.h"
#include "checkpoint/hdf5/layout.h"
#include "checkpoint/hdf5/library.h"
#include "checkpoint/hdf5/view.h"

namespace regroup::checkpoint::hdf5 {
namespace {

using base::Status;

constexpr std::uint64_t kLargestPart = std::uint64_t{1} << 30;

Status check_pieces(const CheckpointPart& part) {
  for (const CheckpointPiece& piece : part.pieces) {
    const auto wrong = [&](const std::string& why) {
      return base::invalid_argument(fmt::format("tensor {}: {}", base::escaped(piece.name), why));
    };
    const auto size = size_of_dtype(piece.dtype);
    if (!size) return wrong(fmt::format("unknown type {}", base::escaped(piece.dtype)));
    if (piece.shape.size() > kMaxRank)
      return wrong(fmt::format("{} dimensions, expected at most {}", piece.shape.size(), kMaxRank));
    if (!lies_within(piece.box, piece.shape))
      return wrong(fmt::format("piece {} reaches beyond the tensor", to_string(piece.box)));
    const std::uint64_t expected = volume_of(piece.box.count).value_or(0) * *size;
    if (piece.bytes.size() != expected)
      return wrong(fmt::format("piece {} takes {} bytes of {}, got {}", to_string(piece.box),
                               expected, piece.dtype, piece.bytes.size()));
  }
  return {};
}

// The manifest of a part, and the place in it of each piece of the part.
struct Described {
  Manifest part;
  std::vector<std::pair<std::size_t, std::size_t>> places;  // index of the tensor, and of its piece
};

Described describe(const CheckpointPart& part, const std::string& file, const ShardLayout& layout) {
  Described out{part.about, {}};
  out.part.files = {{file, layout.bytes, {}}};
  std::vector<Tensor>& tensors = out.part.tensors;
  tensors.clear();
  std::unordered_map<std::string_view, std::size_t> index;
  index.reserve(part.pieces.size());
  for (std::size_t i = 0; i < part.pieces.size(); ++i) {
    const CheckpointPiece& piece = part.pieces[i];
    const auto [at, fresh] = index.try_emplace(piece.name, tensors.size());
    if (fresh) tensors.push_back({piece.name, piece.dtype, piece.shape, {}});
    std::vector<Piece>& pieces = tensors[at->second].pieces;
    out.places.emplace_back(at->second, pieces.size());
    pieces.push_back({0,
                      layout.places[i].dataset,
                      piece.box,
                      {layout.places[i].offset, piece.bytes.size(), {}}});
  }
  return out;
}

// The bytes of the file in order: the pieces, and between them the metadata that HDF5 wrote.
class Extents {
 public:
  Extents(Described* described, const CheckpointPart& part) : file_(described->part.files[0]) {
    for (std::size_t i = 0; i < part.pieces.size(); ++i) {
      const auto [tensor, nth] = described->places[i];
      const auto bytes = part.pieces[i].bytes;
      if (!bytes.empty())
        pieces_.push_back({bytes, &described->part.tensors[tensor].pieces[nth].range});
    }
    std::ranges::sort(pieces_, {}, [](const Extent& extent) { return extent.range->offset; });
  }

  base::Result<std::vector<Extent>> all(const std::string& path) {
    REGROUP_ASSIGN_OR_RETURN(auto file, open_file(path, O_RDONLY));
    file_.rest.reserve(pieces_.size() + 1);  // extents point into it
    std::vector<Extent> out;
    std::uint64_t at = 0;
    for (const Extent& piece : pieces_) {
      REGROUP_RETURN_IF_ERROR(add_rest(file.get(), path, at, piece.range->offset, &out));
      out.push_back(piece);
      at = piece.range->offset + piece.bytes.size();
    }
    REGROUP_RETURN_IF_ERROR(add_rest(file.get(), path, at, file_.bytes, &out));
    return out;
  }

 private:
  Status add_rest(int fd, const std::string& path, std::uint64_t begin, std::uint64_t end,
                  std::vector<Extent>* out) {
    if (begin > end)
      return base::internal_error(
          fmt::format("{}: HDF5 placed two datasets at byte {}", path, end));
    if (begin == end) return {};
    auto& bytes = rest_.emplace_back(end - begin);
    REGROUP_RETURN_IF_ERROR(read_at(fd, begin, bytes, path));
    out->push_back({bytes, &file_.rest.emplace_back()});
    return {};
  }

  File& file_;
  std::vector<Extent> pieces_;
  std::deque<std::vector<std::byte>> rest_;
};

class Store final : public CheckpointStore {
 public:
  Store(std::string directory, WriteOptions options)
      : directory_(std::move(directory)), options_(std::move(options)) {
    configure_errors();
  }

  Status write(const CheckpointPart& part) override {
    REGROUP_RETURN_IF_ERROR(check_pieces(part));
    const std::string stage = stage_of(part);
    REGROUP_RETURN_IF_ERROR(make_folder(stage));
    const std::string name = fmt::format("shard-{:04}-of-{:04}.h5", part.writer, part.writers);
    const std::string path = stage + "/" + name;
    REGROUP_ASSIGN_OR_RETURN(auto layout, lay_out(path, part.pieces));
    Described described = describe(part, name, layout);
    Extents extents(&described, part);
    REGROUP_ASSIGN_OR_RETURN(auto all, extents.all(path));
    REGROUP_RETURN_IF_ERROR(write_image(path, all, layout.bytes, options_));
    if (part.writers == 1 && options_.commits) {
      own_.emplace(stage, std::move(described.part));
      return {};
    }
    // Another process, perhaps on another host, will commit, and relies on this part being on disk.
    REGROUP_RETURN_IF_ERROR(
        write_new_file(part_path(stage, part.writer), encode(described.part), /*durable=*/true));
    return sync_folder(stage);
  }

  Status commit(const CheckpointPart& part) override {
    const std::string stage = stage_of(part);
    std::vector<Manifest> parts;
    const bool own = own_ && own_->first == stage;
    if (own) parts.push_back(std::move(own_->second));
    own_.reset();
    for (std::uint32_t writer = 0; !own && writer < part.writers; ++writer) {
      REGROUP_ASSIGN_OR_RETURN(auto read, read_part(part_path(stage, writer)));
      parts.push_back(std::move(read));
    }
    const Packs packs = packs_of(parts);  // settle may remove pieces; the files stay as they are
    if (options_.settle) REGROUP_RETURN_IF_ERROR(options_.settle(parts));
    REGROUP_ASSIGN_OR_RETURN(auto whole, merge(std::move(parts)));
    REGROUP_RETURN_IF_ERROR(add_view(stage, packs, &whole));
    for (std::uint32_t writer = 0; !own && writer < part.writers; ++writer)
      REGROUP_RETURN_IF_ERROR(remove_all(part_path(stage, writer)));
    return commit_stage(directory_, stage, whole);
  }

 private:
  [[nodiscard]] std::string stage_of(const CheckpointPart& part) const {
    return stage_path(directory_, part.about.step, part.uuid);
  }
  static std::string part_path(const std::string& stage, std::uint32_t writer) {
    return fmt::format("{}/PART-{:04}", stage, writer);
  }
  static base::Result<Manifest> read_part(const std::string& path) {
    auto text = read_file(path, kLargestPart);
    if (text.code() == base::Code::kNotFound)
      return base::unavailable(path + ": the part of this writer is missing");
    if (!text.ok()) return text.status();
    return parse_part(std::as_bytes(std::span(*text)), path);
  }

  const std::string directory_;
  const WriteOptions options_;
  std::optional<std::pair<std::string, Manifest>> own_;  // stage and part, if this writer is alone
};

}  // namespace

std::unique_ptr<CheckpointStore> make_store(std::string directory, WriteOptions options) {
  return std::make_unique<Store>(std::move(directory), std::move(options));
}

}  // namespace regroup::checkpoint::hdf5
