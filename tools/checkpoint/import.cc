// import --from safetensors | npz: maps the file and writes it as a checkpoint. Those of torch:
// torch_import.h.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>

#include "checkpoint/dtype.h"
#include "checkpoint/file_io.h"
#include "checkpoint/hdf5/factory.h"
#include "tools/checkpoint/command.h"
#include "tools/checkpoint/foreign_types.h"
#include "tools/checkpoint/safetensors.h"
#include "tools/checkpoint/torch_import.h"
#include "tools/checkpoint/zip.h"

namespace regroup::checkpoint_tool {
namespace {

using checkpoint::SnapshotPiece;
using core::invalid_argument;
using core::Result;
using Bytes = std::span<const std::byte>;
using Pieces = std::vector<SnapshotPiece>;

constexpr std::string_view kNpy = ".npy";

// What stands behind `key` in a header of NumPy, which is the text of a Python dictionary.
std::string_view value_of(std::string_view header, std::string_view key) {
  const std::size_t at = header.find(fmt::format("'{}':", key));
  if (at == std::string_view::npos) return {};
  std::string_view rest = header.substr(at + key.size() + 3);
  rest.remove_prefix(std::min(rest.size(), rest.find_first_not_of(' ')));
  return rest;
}

std::optional<checkpoint::Shape> shape_of(std::string_view text) {
  checkpoint::Shape out;
  if (!text.starts_with('(')) return std::nullopt;
  text.remove_prefix(1);
  for (;;) {
    text.remove_prefix(std::min(text.size(), text.find_first_not_of(", ")));
    if (text.starts_with(')')) return out;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out.emplace_back());
    if (error != std::errc() || out.size() > checkpoint::kMaxRank) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  }
}

// Where the header of an array ends; 0: it is none.
std::size_t npy_header_end(Bytes file) {
  if (file.size() < 12 || std::memcmp(file.data(), "\x93NUMPY", 6) != 0) return 0;
  const auto at = [&](std::size_t i) { return std::to_integer<std::size_t>(file[i]); };
  const bool first = at(6) == 1;
  const std::size_t length = at(8) | at(9) << 8 | (first ? 0 : at(10) << 16 | at(11) << 24);
  const std::size_t begin = first ? 10 : 12;
  return length <= file.size() - begin ? begin + length : 0;
}

Result<SnapshotPiece> read_npy(const std::string& name, Bytes file) {
  const auto wrong = [&](const char* what) {
    return invalid_argument(fmt::format("array {}: {}", name, what));
  };
  const std::size_t end = npy_header_end(file);
  if (end == 0) return wrong("no array of NumPy");
  const std::string_view header(reinterpret_cast<const char*>(file.data()), end);
  std::string_view descr = value_of(header, "descr");
  descr = descr.substr(std::min<std::size_t>(1, descr.size()));
  descr = descr.substr(0, descr.find('\''));
  const TypeNames* type = by_numpy(descr);
  if (type == nullptr) return wrong("of a type that is not known");
  if (!value_of(header, "fortran_order").starts_with("False")) return wrong("in Fortran's order");
  const auto shape = shape_of(value_of(header, "shape"));
  const auto volume = shape ? checkpoint::volume_of(*shape) : std::nullopt;
  if (!volume || *volume * *checkpoint::size_of_dtype(type->ours) != file.size() - end)
    return wrong("its shape does not fit its bytes");
  return SnapshotPiece{name, std::string(type->ours), *shape, checkpoint::whole(*shape), file.subspan(end)};
}

Result<Pieces> read_npz(Bytes file, const std::string& name) {
  const auto members = read_zip(file, name);
  if (!members.ok()) return members.status();
  Pieces out;
  for (const ZipMember& member : *members) {
    const bool npy = member.name.ends_with(kNpy);
    auto piece =
        read_npy(npy ? member.name.substr(0, member.name.size() - kNpy.size()) : member.name, member.bytes);
    if (!piece.ok()) return invalid_argument(name + ": " + piece.status().message());
    out.push_back(std::move(*piece));
  }
  return out;
}

// The whole file; mapped until the process ends, which is soon.
Result<Bytes> map(const std::string& path) {
  auto file = checkpoint::open_file(path, O_RDONLY);
  if (!file.ok()) return file.status();
  const auto size = checkpoint::size_of(file->get(), path);
  if (!size.ok()) return size.status();
  if (*size == 0) return Bytes();
  void* base = ::mmap(nullptr, *size, PROT_READ, MAP_PRIVATE, file->get(), 0);
  if (base == MAP_FAILED) return core::system_error("mmap", path, errno);
  return Bytes(static_cast<const std::byte*>(base), *size);
}

std::string format_of(const Arguments& arguments) {
  if (!arguments.format.empty()) return arguments.format;
  const std::string& path = arguments.words[0];
  const std::string ending = path.substr(std::min(path.size(), path.rfind('.') + 1));
  return ending == "pt" || ending == "pth" ? "torch" : ending;
}

}  // namespace

Answer import_from(const Arguments& arguments) {
  const std::string &path = arguments.words[0], &directory = arguments.words[1];
  const std::string format = format_of(arguments);
  if (format == "torch") return import_torch(path, directory, arguments.step.value_or(0));
  if (format != "safetensors" && format != "npz")
    return invalid_argument("import: --from safetensors, torch or npz is wanted");
  const auto file = map(path);
  if (!file.ok()) return file.status();
  auto pieces = format == "npz" ? read_npz(*file, path) : read_safetensors(*file, path);
  if (!pieces.ok()) return pieces.status();
  const auto lock = checkpoint::DirectoryLock::take(directory, "regroup checkpoint import");
  if (!lock.ok()) return lock.status();
  checkpoint::Snapshot snapshot;
  snapshot.about.step = arguments.step.value_or(0);
  snapshot.about.job = "import";
  snapshot.uuid = fmt::format("import-{}", ::getpid());
  snapshot.pieces = std::move(*pieces);
  const auto store = checkpoint::hdf5::make_store(directory);
  REGROUP_RETURN_IF_ERROR(store->write(snapshot));
  REGROUP_RETURN_IF_ERROR(store->commit(snapshot));
  fmt::print("{}/{}\n", directory, checkpoint::name_of_step(snapshot.about.step));
  return 0;
}

}  // namespace regroup::checkpoint_tool
