// --help: from the table.
#include <fmt/format.h>

#include <algorithm>

#include "launcher/options/spec.h"

namespace regroup::launcher {
namespace {

constexpr std::size_t kLeft = 28;   // columns of the option
constexpr std::size_t kWidth = 80;  // of the whole

// "-np, -n, -c N|MIN:MAX"
std::string left_of(const Spec& spec, bool all_names) {
  std::string out;
  for (const std::string& name : spec.names) {
    out += (out.empty() ? "" : ", ") + dashed(name);
    if (!all_names && out.find(", ") != std::string::npos) break;
  }
  return spec.value.empty() ? out : out + " " + spec.value;
}

// `text` in lines that begin at column kLeft + 4.
std::string wrapped(const std::string& text) {
  std::string out;
  std::size_t column = 0;
  std::size_t from = 0;
  while (from < text.size()) {
    const std::size_t to = std::min(text.find(' ', from), text.size());
    if (column > 0 && column + 1 + (to - from) > kWidth - kLeft - 4) {
      out += "\n" + std::string(kLeft + 4, ' ');
      column = 0;
    }
    if (column > 0) out += ' ', ++column;
    out += text.substr(from, to - from);
    column += to - from;
    from = to + 1;
  }
  return out;
}

std::string entry(const Spec& spec, bool all_names) {
  const std::string left = left_of(spec, all_names);
  std::string out = fmt::format("  {:<{}}", left, kLeft);
  out += left.size() > kLeft ? "\n" + std::string(kLeft + 4, ' ') : "  ";
  return out + wrapped(spec.help) + "\n";
}

std::string section(const GroupText& group, bool common_only) {
  std::string out;
  for (const Spec& spec : table()) {
    if (spec.group == group.group && (!common_only || spec.common == Common::kYes))
      out += entry(spec, !common_only);
  }
  return out.empty() ? "" : fmt::format("\n{} ({}):\n{}", group.title, group.name, out);
}

// An option, which may mean two things.
std::string entries_of(const std::string& name) {
  const Spec* const first = find_option(name, Compat::kOpenMpi);
  const Spec* const second = find_option(name, Compat::kMpich);
  const std::string out = first != nullptr ? entry(*first, true) : "";
  return second == nullptr || second == first ? out : out + entry(*second, true);
}

constexpr std::string_view kUsage =
    "usage: regroup [OPTIONS] PROGRAM [ARGUMENTS] [: [OPTIONS] PROGRAM ...]\n"
    "       regroup --role NAME=N [--role ...] PROGRAM [ARGUMENTS]\n"
    "       regroup --job FILE.yaml\n"
    "       regroup -np N regroup bench OPERATION    measure collective operations\n"
    "       regroup checkpoint VERB ...             list, verify, compare checkpoints\n"
    "       regroup place --machine FILE -np N      where ranks would go, and why\n"
    "       regroup topo [--machine FILE]           what is in a machine; pictures\n"
    "       regroup status [--json|--follow] [JOB]  what a job does, uses, and why\n"
    "       regroup resize MEMBERS [JOB]            let it have so many members\n"
    "       regroup notice MEMBER [JOB]             let a member leave after its step\n"
    "       regroup kill-member MEMBER [JOB]        SIGKILL a member\n"
    "JOB may be left out if there is only one. Options have one or two dashes.\n";

}  // namespace

std::string help_text(const std::string& topic) {
  const std::string name = topic.substr(std::min(topic.find_first_not_of('-'), topic.size()));
  for (const GroupText& group : groups()) {
    if (name == group.name) return section(group, false).substr(1);
  }
  if (std::string found = entries_of(name); !found.empty()) return found;
  std::string out(kUsage);
  std::string names;
  for (const GroupText& group : groups()) {
    out += section(group, name != "all");
    names += fmt::format(" {}", group.name);
  }
  if (name != "all") {
    out += fmt::format(
        "\nThese are the common ones. --help all shows all, --help OPTION one of them,\n--help GROUP those "
        "of a group:\n{}\n",
        names);
  }
  return out;
}

}  // namespace regroup::launcher
