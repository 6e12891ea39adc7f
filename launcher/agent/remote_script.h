// The script for a shell on another host, and its answers, as text. The script is the standard
// input of
// `/bin/sh`, so the user's login shell does not interpret it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/status.h"
#include "launcher/agent/spawner.h"

namespace regroup::agent {

// Quotes `text` as one word of a POSIX shell, whatever bytes it has.
[[nodiscard]] std::string quote(std::string_view word);

// The script checks folder and program, prints a line with the result, and becomes the agent. A
// shell reads the whole script before it runs any of it, so the bytes after it are the agent's
// input. kInvalidArgument: a zero byte.
[[nodiscard]] base::Result<std::string> script_of(const AgentOrder& order);

enum class Answer { kNone, kHere, kNoFolder, kNoProgram, kNotExecutable };
[[nodiscard]] Answer answer_in(std::string_view line);
[[nodiscard]] base::Status explain(Answer answer, const AgentOrder& order);

// Exit status of an agent whose last line is the reason why it cannot serve.
inline constexpr int kSaidWhy = 76;

// How the process that should start the agent has ended. `tool`: its name ("ssh"); `wait_status`:
// of waitpid(); `last_line`: its last line on standard error.
struct Ending {
  std::string tool;
  int wait_status = 0;
  bool was_up = false;
  std::string last_line;
};
[[nodiscard]] base::Status explain(const Ending& ending, const AgentOrder& order);

// A host or user name may not look like an option, nor contain blanks or control characters.
[[nodiscard]] base::Status check_name(const std::string& name, std::string_view what);

// Makes text safe for a terminal, the journal or JSON: one line of UTF-8 (RFC 3629). Each byte of a
// control character, C1 (U+0080 to U+009F) included, or of invalid UTF-8 becomes '?'; text beyond
// `most` bytes is cut.
inline constexpr std::size_t kLongestPrinted = 500;
[[nodiscard]] std::string printable(std::string_view line, std::size_t most = kLongestPrinted);

}  // namespace regroup::agent
