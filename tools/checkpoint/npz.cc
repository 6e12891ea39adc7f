// If NumPy lacks the type of an array, the comment of its archive member gives the type.
// numpy.load() ignores the comment.
#include "tools/checkpoint/npz.h"

#include <fmt/format.h>

#include <string_view>
#include <unordered_set>

#include "base/printable.h"
#include "tools/checkpoint/npy.h"
#include "tools/checkpoint/zip.h"

namespace regroup::checkpoint_tool {
namespace {

using base::invalid_argument;

constexpr std::string_view kNpy = ".npy";

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t bytes = base::utf8_length(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

}  // namespace

base::Result<Arrays> read_npz(std::span<const std::byte> file, const std::string& name) {
  REGROUP_ASSIGN_OR_RETURN(const auto members, read_zip(file, name));
  Arrays out;
  std::unordered_set<std::string> names;
  for (const ZipMember& member : members) {
    const bool npy = member.name.ends_with(kNpy);
    const std::string array =
        npy ? member.name.substr(0, member.name.size() - kNpy.size()) : member.name;
    if (!is_utf8(array))
      return invalid_argument(
          fmt::format("{}: array {}: the name is not UTF-8", name, base::escaped(array)));
    if (!names.insert(array).second)
      return invalid_argument(
          fmt::format("{}: array {}: listed twice", name, base::escaped(array)));
    auto read = read_npy(array, member.bytes, member.comment);
    if (!read.ok()) return invalid_argument(name + ": " + read.status().message());
    out.pieces.push_back(std::move(read->piece));
    if (read->converted) out.converted.push_back(std::move(read->converted));
  }
  return out;
}

}  // namespace regroup::checkpoint_tool
