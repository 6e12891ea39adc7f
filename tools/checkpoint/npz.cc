// Reads the header of each array, numpy.lib.format of NumPy, versions 1 to 3.
#include "tools/checkpoint/npz.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <unordered_set>

#include "checkpoint/dtype.h"
#include "tools/checkpoint/foreign_types.h"
#include "tools/checkpoint/zip.h"

namespace regroup::checkpoint_tool {
namespace {

using checkpoint::SnapshotPiece;
using core::invalid_argument;
using core::Result;
using Bytes = std::span<const std::byte>;

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

// RFC 3629: no overlong form, no surrogate, nothing above U+10FFFF.
bool is_utf8(std::string_view text) {
  constexpr std::uint32_t kLowest[] = {0, 0, 0x80, 0x800, 0x10000};  // by length
  while (!text.empty()) {
    const auto lead = static_cast<unsigned char>(text[0]);
    const std::size_t length = lead < 0x80 ? 1 : lead < 0xc0 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (length == 0 || length > text.size() || lead > 0xf4) return false;
    std::uint32_t code = length == 1 ? lead : lead & (0x7fU >> length);
    for (const char next : text.substr(1, length - 1)) {
      if ((next & 0xc0) != 0x80) return false;
      code = code << 6 | (next & 0x3f);
    }
    if (code < kLowest[length] || (code >= 0xd800 && code <= 0xdfff) || code > 0x10ffff) return false;
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace

Result<SnapshotPiece> read_npy(const std::string& name, Bytes file) {
  const auto wrong = [&](const char* what) {
    return invalid_argument(fmt::format("array {}: {}", name, what));
  };
  if (!is_utf8(name)) return wrong("its name is not UTF-8");
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

Result<std::vector<SnapshotPiece>> read_npz(std::span<const std::byte> file, const std::string& name) {
  const auto members = read_zip(file, name);
  if (!members.ok()) return members.status();
  std::vector<SnapshotPiece> out;
  std::unordered_set<std::string> names;
  for (const ZipMember& member : *members) {
    const bool npy = member.name.ends_with(kNpy);
    auto piece =
        read_npy(npy ? member.name.substr(0, member.name.size() - kNpy.size()) : member.name, member.bytes);
    if (!piece.ok()) return invalid_argument(name + ": " + piece.status().message());
    if (!names.insert(piece->name).second)
      return invalid_argument(fmt::format("{}: array {}: the file has two of this name", name, piece->name));
    out.push_back(std::move(*piece));
  }
  return out;
}

}  // namespace regroup::checkpoint_tool
