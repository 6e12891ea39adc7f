// What is said to a shell on another host and what it answers: pure text. The script goes to `/bin/sh` on its
// standard input, so the user's login shell sees no word of it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/status.h"
#include "launcher/spawn/spawner.h"

namespace regroup::launcher {

// As one word of a POSIX shell, whatever bytes it holds.
[[nodiscard]] std::string quote(std::string_view word);

// Looks for folder and program, answers with a line that says how it went, and becomes the agent. A shell has
// read all of it before it runs any, so what follows on the input is the agent's. kInvalidArgument: a byte 0.
[[nodiscard]] core::Result<std::string> script_of(const AgentOrder& order);

enum class Answer { kNone, kHere, kNoFolder, kNoProgram, kNotExecutable };
[[nodiscard]] Answer answer_in(std::string_view line);
[[nodiscard]] core::Status explain(Answer answer, const AgentOrder& order);

// The exit status of an agent whose last line says why it cannot serve, as a sentence of the launcher's.
inline constexpr int kSaidWhy = 76;

// How a process that was to bring the agent there has ended. `tool` is its name ("ssh"), `wait_status` as of
// waitpid, `last_line` what it said last on its error output.
struct Ending {
  std::string tool;
  int wait_status = 0;
  bool was_up = false;
  std::string last_line;
};
[[nodiscard]] core::Status explain(const Ending& ending, const AgentOrder& order);

// A name of a host, or a user, may not look like an option, nor hold blanks or control characters.
[[nodiscard]] core::Status check_name(const std::string& name, std::string_view what);

// For a terminal, a journal, JSON: one line of UTF-8 (RFC 3629). Each byte of control characters, those of C1
// (U+0080 to U+009F) as well, and of what is no UTF-8 becomes '?'; the end of what is longer than `most`
// bytes is cut off.
inline constexpr std::size_t kLongestPrinted = 500;
[[nodiscard]] std::string printable(std::string_view line, std::size_t most = kLongestPrinted);

}  // namespace regroup::launcher
