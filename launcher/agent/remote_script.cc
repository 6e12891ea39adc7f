// The script is one compound command: a shell that reads its input in blocks would else start to
// run a part of it.
#include "launcher/agent/remote_script.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstring>

#include "base/printable.h"

namespace regroup::agent {
namespace {

constexpr std::string_view kMark = "regroup-spawn: ";
constexpr int kNotFound = 127, kCannotRun = 126, kSshFailed = 255;

constexpr struct {
  Answer answer;
  std::string_view word;
} kAnswers[] = {{Answer::kHere, "here"},
                {Answer::kNoFolder, "no folder"},
                {Answer::kNoProgram, "no program"},
                {Answer::kNotExecutable, "not executable"}};

std::string say(Answer answer) {
  const auto* row = std::find_if(std::begin(kAnswers), std::end(kAnswers),
                                 [answer](const auto& r) { return r.answer == answer; });
  return fmt::format("echo '{}{}'", kMark, row->word);
}

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

// ": it printed ...", if it printed something.
std::string after(std::string_view line) { return line.empty() ? "" : fmt::format(": {}", line); }

}  // namespace

std::string quote(std::string_view word) {
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

base::Result<std::string> script_of(const AgentOrder& order) {
  std::string arguments;
  for (const std::string& argument : order.arguments) arguments += " " + quote(argument);
  const std::string program = quote(order.program);
  std::string script = "{\n";
  if (!order.wdir.empty()) {
    script += fmt::format("cd -- {} >/dev/null 2>&1 || {{ {}; exit 1; }}\n", quote(order.wdir),
                          say(Answer::kNoFolder));
  }
  if (!order.preferred.empty()) {
    const std::string preferred = quote(order.preferred);
    script += fmt::format("[ -f {0} ] && [ -x {0} ] && {{ {1}; exec {0}{2}; }}\n", preferred,
                          say(Answer::kHere), arguments);
  }
  script += fmt::format("[ -f {} ] || {{ {}; exit 1; }}\n", program, say(Answer::kNoProgram));
  script += fmt::format("[ -x {} ] || {{ {}; exit 1; }}\n", program, say(Answer::kNotExecutable));
  script += fmt::format("{}\nexec {}{}\n}}\n", say(Answer::kHere), program, arguments);
  if (script.find('\0') == std::string::npos) return script;
  return base::invalid_argument(
      fmt::format("{}: the agent's command contains a NUL byte", order.host));
}

Answer answer_in(std::string_view line) {
  if (!line.starts_with(kMark)) return Answer::kNone;
  const std::string_view word = line.substr(kMark.size());
  const auto* row = std::find_if(std::begin(kAnswers), std::end(kAnswers),
                                 [word](const auto& r) { return r.word == word; });
  return row == std::end(kAnswers) ? Answer::kNone : row->answer;
}

base::Status explain(Answer answer, const AgentOrder& order) {
  switch (answer) {
    case Answer::kNoFolder:
      return base::not_found(fmt::format("{}: cannot change to folder {}", order.host, order.wdir));
    case Answer::kNoProgram:
      return base::not_found(
          fmt::format("{}: program {} does not exist", order.host, order.program));
    case Answer::kNotExecutable:
      return base::invalid_argument(
          fmt::format("{}: {} is not executable", order.host, order.program));
    case Answer::kNone:
    case Answer::kHere:
      break;
  }
  return {};
}

base::Status explain(const Ending& ending, const AgentOrder& order) {
  const std::string& host = order.host;
  if (WIFSIGNALED(ending.wait_status)) {
    const int signal = WTERMSIG(ending.wait_status);
    return base::peer_lost(fmt::format("{}: {} was killed by signal {} ({})", host,
                                       ending.was_up ? "the agent" : ending.tool, signal,
                                       ::strsignal(signal)));
  }
  const int status = WEXITSTATUS(ending.wait_status);
  if (status == kSshFailed && ending.tool != "sh") {
    std::string_view said = ending.last_line;
    if (said.starts_with("ssh: ")) said.remove_prefix(5);
    return {ending.was_up ? base::Code::kPeerLost : base::Code::kUnavailable,
            fmt::format("{}: {} {}{}", host, ending.tool,
                        ending.was_up ? "lost the agent" : "failed", after(said))};
  }
  if (!ending.was_up) {
    return base::unavailable(fmt::format("{}: {} ended with status {} before the agent started{}",
                                         host, ending.tool, status, after(ending.last_line)));
  }
  if (status == 0) return {};
  if (status == kSaidWhy && !ending.last_line.empty())
    return base::invalid_argument(fmt::format("{}: {}", host, ending.last_line));
  if (status == kNotFound || status == kCannotRun) {
    return base::not_found(
        fmt::format("{}: cannot run {}{}", host, order.program, after(ending.last_line)));
  }
  return base::internal_error(
      fmt::format("{}: the agent ended with status {}{}", host, status, after(ending.last_line)));
}

base::Status check_name(const std::string& name, std::string_view what) {
  const bool bad =
      name.empty() || name.front() == '-' ||
      std::any_of(name.begin(), name.end(), [](char c) { return is_control(c) || c == ' '; });
  if (bad)
    return base::invalid_argument(
        fmt::format("'{}': expected the name of a {}", printable(name), what));
  return {};
}

std::string printable(std::string_view line, std::size_t most) {
  std::string out;
  for (line = line.substr(0, most); !line.empty();) {
    const std::size_t bytes = base::printable_length(line);
    out += bytes == 0 ? "?" : line.substr(0, bytes);
    line.remove_prefix(std::max<std::size_t>(bytes, 1));
  }
  return out;
}

}  // namespace regroup::agent
