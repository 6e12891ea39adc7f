// What other texts and the parser take from --help.
#pragma once

#include <string>
#include <vector>

#include "launcher/cli/spec.h"

namespace regroup::cli {

// The first clause of an option's help: no details, no default.
[[nodiscard]] std::string summary(const Spec& spec);
// The topics of `--help TOPIC` that are not options: groups, commands and "all".
[[nodiscard]] std::vector<std::string> help_topics();
// Of `regroup COMMAND`.
[[nodiscard]] std::vector<std::string> command_names();

}  // namespace regroup::cli
