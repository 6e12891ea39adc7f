// Fills the names in the prefix of output lines: of torchrun's template, of Open MPI 5's --output
// and of hydra's -prepend-pattern, which the command line translates.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace regroup::process {

// Names, without "$" and "${}", and their values.
using PrefixNames = std::vector<std::pair<std::string, std::string>>;

// As Python's string.Template has it: ${name} or $name, and $$ for a dollar. Keeps unknown names.
[[nodiscard]] inline std::string fill_in_names(std::string_view rest, const PrefixNames& names) {
  std::vector<std::pair<std::string, std::string>> values{{"$$", "$"}};
  for (const auto& [name, value] : names) {
    values.emplace_back("${" + name + "}", value);
    values.emplace_back("$" + name, value);
  }
  std::string out;
  while (!rest.empty()) {
    const auto value = std::ranges::find_if(
        values, [&](const auto& each) { return rest.starts_with(each.first); });
    const bool found = value != values.end();
    out += found ? std::string_view(value->second) : rest.substr(0, 1);
    rest.remove_prefix(found ? value->first.size() : 1);
  }
  return out;
}

}  // namespace regroup::process
