// pugixml neither follows external entities nor expands declared ones; this adds bounds for size
// and depth.
#include "launcher/topology/xml_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "launcher/topology/text_input.h"

namespace regroup::topology {
namespace {

constexpr std::size_t kMaxDepth = 64, kMaxElements = 200'000, kMaxAttribute = std::size_t{64} << 10;

std::size_t line_at(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, offset);
  return 1 + static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n'));
}

}  // namespace

base::Result<XmlInput> XmlInput::parse(std::string_view text, const std::string& source) {
  if (text.size() > kMaxTopologyBytes) return input_error(source, 0, "exceeds the size limit");
  if (const std::size_t at = text.find("<!ENTITY"); at != std::string_view::npos)
    return input_error(source, line_at(text, at), "declares an entity, which is not supported");
  if (const std::size_t at = text.find('\0'); at != std::string_view::npos)
    return input_error(source, line_at(text, at), "contains a zero byte");
  XmlInput out;
  out.source_ = source;
  out.text_ = text;
  out.document_ = std::make_unique<pugi::xml_document>();
  const pugi::xml_parse_result result = out.document_->load_buffer(
      out.text_.data(), out.text_.size(), pugi::parse_default, pugi::encoding_utf8);
  if (!result) {
    const auto offset = static_cast<std::size_t>(std::max<std::ptrdiff_t>(result.offset, 0));
    return input_error(source, line_at(text, offset), result.description());
  }
  if (!out.root()) return input_error(source, 0, "contains no element");
  REGROUP_RETURN_IF_ERROR(out.check());
  return out;
}

std::size_t XmlInput::line(const pugi::xml_node& node) const {
  const std::ptrdiff_t offset = node.offset_debug();
  return offset < 0 ? 0 : line_at(text_, static_cast<std::size_t>(offset));
}

base::Status XmlInput::error(const pugi::xml_node& node, std::string_view what) const {
  return input_error(source_, line(node), what);
}

base::Result<std::int64_t> XmlInput::number(const pugi::xml_node& node, const char* attribute,
                                            std::int64_t least, std::int64_t most,
                                            std::int64_t otherwise) const {
  const std::string_view text = node.attribute(attribute).value();
  if (text.empty()) return otherwise;
  if (const auto value = whole_number(text, least, most)) return *value;
  return error(node, fmt::format("{}=\"{}\": expected a number from {} to {}", attribute,
                                 text.substr(0, 40), least, most));
}

// Walks without recursion, since the depth is not known to be bounded yet.
base::Status XmlInput::check() const {
  std::size_t depth = 1, elements = 0;
  for (pugi::xml_node node = root(); node;) {
    if (++elements > kMaxElements)
      return error(node, fmt::format("more than {} elements", kMaxElements));
    if (depth > kMaxDepth) return error(node, fmt::format("nested deeper than {}", kMaxDepth));
    for (const pugi::xml_attribute& attribute : node.attributes()) {
      if (std::strlen(attribute.value()) > kMaxAttribute)
        return error(node, fmt::format("attribute '{}' is longer than {} bytes", attribute.name(),
                                       kMaxAttribute));
    }
    if (node.first_child()) {
      node = node.first_child();
      ++depth;
      continue;
    }
    while (node && node != root() && !node.next_sibling()) {
      node = node.parent();
      --depth;
    }
    node = node == root() ? pugi::xml_node() : node.next_sibling();
  }
  return {};
}

}  // namespace regroup::topology
