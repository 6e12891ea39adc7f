// Text of a file that somebody wrote, without what editors leave in it.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace regroup::base {

// `text` of the file `path` with lines that end in \n (\r\n and \r end one, too), without byte
// order marks at the beginnings of lines (files are joined) and without what follows a Ctrl-Z of
// DOS. kInvalidArgument: it is UTF-16 or UTF-32, or has a NUL byte.
[[nodiscard]] Result<std::string> plain_text(std::string_view text, std::string_view path);

}  // namespace regroup::base
