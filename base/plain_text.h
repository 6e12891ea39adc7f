// Cleans the text of a hand-written file (hostfile, job file) of what editors leave in it.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace regroup::base {

// Returns `text`, the content of the file `path`, with all line ends (\r\n, \r) as \n, without byte
// order marks at the start of any line (concatenated files have several) and without anything after
// a DOS Ctrl-Z. kInvalidArgument: the text is UTF-16 or UTF-32, or has a NUL byte.
[[nodiscard]] Result<std::string> plain_text(std::string_view text, std::string_view path);

}  // namespace regroup::base
