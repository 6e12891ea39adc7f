// An option's value is the next word, or follows '=' in the same word.
#include "tools/topo/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "launcher/topology/text_input.h"

namespace regroup::topo {
namespace {

base::Status take(Options& options, const std::string& name, const std::string& value) {
  if (name == "--machine") options.machine = value;
  if (name == "--svg") options.svg = value;
  if (name == "--png") options.png = value;
  if (name == "--ranks") {
    for (const std::string_view word : topology::split(value, ',')) {
      const auto gpu = topology::whole_number(word, 0, topology::kMaxEnds);
      if (!gpu)
        return base::invalid_argument(
            fmt::format("--ranks {}: '{}': expected the number of a GPU", value, word));
      options.gpu_of_rank.push_back(static_cast<int>(*gpu));
    }
  }
  if (name == "--colour") {
    using Colours = Options::Colours;
    if (value != "auto" && value != "always" && value != "never")
      return base::invalid_argument(
          fmt::format("--colour {}: expected auto, always or never", value));
    options.colours = value == "auto"     ? Colours::kAuto
                      : value == "always" ? Colours::kAlways
                                          : Colours::kNever;
  }
  return {};
}

}  // namespace

base::Result<Options> parse_options(const std::vector<std::string>& words) {
  static constexpr std::string_view kWithValue[] = {"--machine", "--svg", "--png", "--ranks",
                                                    "--colour"};
  Options out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::size_t equals = words[i].find('=');
    const std::string name = words[i].substr(0, equals);
    if (words[i] == "--help" || words[i] == "-h") {
      out.help = true;
    } else if (words[i] == "--fresh") {
      out.fresh = true;
    } else if (std::find(std::begin(kWithValue), std::end(kWithValue), name) ==
               std::end(kWithValue)) {
      return base::invalid_argument(fmt::format("unknown option '{}'", words[i]));
    } else if (equals == std::string::npos && i + 1 == words.size()) {
      return base::invalid_argument(fmt::format("{}: a value is missing", name));
    } else {
      const std::string value =
          equals == std::string::npos ? words[++i] : words[i].substr(equals + 1);
      if (value.empty()) return base::invalid_argument(fmt::format("{}: a value is missing", name));
      REGROUP_RETURN_IF_ERROR(take(out, name, value));
    }
  }
  return out;
}

}  // namespace regroup::topo
