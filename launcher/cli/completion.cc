// Completions for bash and zsh, from the table.
#include <fmt/format.h>

#include "base/values.h"
#include "launcher/cli/help.h"
#include "launcher/cli/spec.h"

namespace regroup::cli {
namespace {

enum class Kind : std::uint8_t { kFile, kFolder, kWords, kOther };

// What the first value of an option is, judged by its name in the table.
Kind kind_of(const Spec& spec) {
  const std::string& value = spec.value;
  if (value.starts_with("FILE")) return Kind::kFile;
  if (value.starts_with("DIR")) return Kind::kFolder;
  if (value.find('|') != std::string::npos && base::lower(value) == value) return Kind::kWords;
  return Kind::kOther;
}

std::string alternatives(const Spec& spec) {
  std::string out;
  for (const std::string& word : base::split(spec.value, "|"))
    out += (out.empty() ? "" : " ") + word;
  return out;
}

std::string pattern_of(const Spec& spec) {
  std::string out;
  for (const std::string& name : spec.names)
    out += fmt::format("{}-{}|--{}", out.empty() ? "" : "|", name, name);
  return out;
}

// A word within single quotes in which brackets and colons are zsh's own.
std::string for_zsh(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c == '\'' ? "'\\''" : std::string(1, c);
  }
  return out;
}

std::string zsh_values(const Spec& spec) {
  std::string out;
  for (const std::string& name : value_names(spec)) {
    out += fmt::format(":{}:", for_zsh(name));
    const Kind kind = kind_of(spec);
    if (kind == Kind::kFile) out += "_files";
    if (kind == Kind::kFolder) out += "_files -/";
    if (kind == Kind::kWords) out += fmt::format("({})", alternatives(spec));
  }
  return out;
}

}  // namespace

std::string bash_completion() {
  std::string words;
  std::string cases;
  for (const Spec& spec : table()) {
    for (const std::string& name : spec.names) words += (words.empty() ? "" : " ") + dashed(name);
    const Kind kind = kind_of(spec);
    const std::string pattern = pattern_of(spec);
    if (kind == Kind::kFile)
      cases += fmt::format(
          "    {}) compopt -o filenames; COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n",
          pattern);
    if (kind == Kind::kFolder)
      cases += fmt::format(
          "    {}) compopt -o filenames; COMPREPLY=($(compgen -d -- \"$word\")); return ;;\n",
          pattern);
    if (kind == Kind::kWords)
      cases += fmt::format("    {}) COMPREPLY=($(compgen -W '{}' -- \"$word\")); return ;;\n",
                           pattern, alternatives(spec));
  }
  return fmt::format(
      "# bash completion for regroup, made by regroup --generate bash.\n"
      "_regroup() {{\n"
      "  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}}\n"
      "  case $before in\n{}  esac\n"
      "  if [[ $word == -* ]]; then\n"
      "    COMPREPLY=($(compgen -W '{}' -- \"$word\"))\n"
      "  elif ((COMP_CWORD == 1)); then\n"
      "    COMPREPLY=($(compgen -W 'allocation bench checkpoint doctor join ledger status top "
      "resize notice kill-member topo "
      "help' -- "
      "\"$word\") "
      "$(compgen -c "
      "-- "
      "\"$word\"))\n"
      "  else\n"
      "    compopt -o filenames; COMPREPLY=($(compgen -c -- \"$word\") $(compgen -f -- "
      "\"$word\"))\n"
      "  fi\n"
      "}}\n"
      "complete -F _regroup regroup\n",
      cases, words);
}

std::string zsh_completion() {
  std::string out =
      "#compdef regroup\n"
      "# zsh completion for regroup, made by regroup --generate zsh.\n"
      "_arguments -S \\\n";
  for (const Spec& spec : table()) {
    for (const std::string& name : spec.names) {
      out +=
          fmt::format("  '*{}[{}]{}' \\\n", dashed(name), for_zsh(summary(spec)), zsh_values(spec));
    }
  }
  return out +
         "  '1:program: _alternative \"verbs:verb:(allocation bench checkpoint doctor join ledger "
         "status top resize notice kill-member topo "
         "help)\" "
         "\"commands:program:_command_names -e\"' \\\n  '*::arguments:_normal'\n";
}

}  // namespace regroup::cli
