// Parses untrusted XML: with bounds, without entity declarations, and with the line of each
// element.
#pragma once

#include <memory>
#include <pugixml.hpp>
#include <string>
#include <string_view>

#include "base/status.h"

namespace regroup::topology {

class XmlInput {
 public:
  // kInvalidArgument, "SOURCE:LINE: ...": incomplete or not well formed, nested deeper than 64,
  // more than 200,000 elements, an attribute longer than 64 KiB, or an entity declaration.
  [[nodiscard]] static base::Result<XmlInput> parse(std::string_view text,
                                                    const std::string& source);

  [[nodiscard]] pugi::xml_node root() const { return document_->document_element(); }
  [[nodiscard]] std::size_t line(const pugi::xml_node& node) const;
  [[nodiscard]] const std::string& source() const { return source_; }
  [[nodiscard]] base::Status error(const pugi::xml_node& node, std::string_view what) const;

  // The attribute as a number in [least, most]; `otherwise` if it is missing or empty.
  [[nodiscard]] base::Result<std::int64_t> number(const pugi::xml_node& node, const char* attribute,
                                                  std::int64_t least, std::int64_t most,
                                                  std::int64_t otherwise) const;

 private:
  [[nodiscard]] base::Status check() const;

  std::string source_;
  std::string text_;
  std::unique_ptr<pugi::xml_document> document_;
};

}  // namespace regroup::topology
