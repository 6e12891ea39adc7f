// --help: from the table.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

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
    "       regroup join [JOB]                      lend it this allocation's hosts\n"
    "       regroup allocation [--json]             what an allocator granted here\n"
    "       regroup notice MEMBER [JOB]             let a member leave after its step\n"
    "       regroup kill-member MEMBER [JOB]        SIGKILL a member\n"
    "JOB may be left out if there is only one. Options have one or two dashes.\n";

// Of `regroup VERB --help`; verbs that are not here tell themselves.
constexpr std::pair<std::string_view, std::string_view> kOfVerbs[] = {
    {"status",
     "usage: regroup status [--json|--prometheus|--follow] [JOB]\n"
     "Members of a job, what they do and use, and why it has become as it is.\n"
     "--follow: a line for each change, until the job is over.\n"},
    {"resize",
     "usage: regroup resize MEMBERS [JOB]\n"
     "Lets a job of -np MIN:MAX that runs have so many members, from MIN to MAX. Who\n"
     "is one too many leaves at the end of its step. In a job of Slurm or LSF slots\n"
     "that are missing are asked for, what is not wanted any more is cancelled while\n"
     "it waits, and hosts without a member go back. Exit status: 0 once the job has\n"
     "the new size as its aim; members may come and go later.\n"},
    {"notice",
     "usage: regroup notice MEMBER [JOB]\n"
     "Lets a member, by its number in `regroup status`, leave at the end of its step,\n"
     "as if its host were taken away.\n"},
    {"kill-member",
     "usage: regroup kill-member MEMBER [JOB]\n"
     "Kills a member, by its number in `regroup status`, to see how the others go on.\n"}};
constexpr std::string_view kJob = "JOB: its id; it may be left out where there is only one.\n";

}  // namespace

std::string help_text(const std::string& topic) {
  const std::string name = topic.substr(std::min(topic.find_first_not_of('-'), topic.size()));
  for (const GroupText& group : groups()) {
    if (name == group.name) return section(group, false).substr(1);
  }
  for (const auto& [verb, text] : kOfVerbs) {
    if (name == verb) return fmt::format("{}{}", text, kJob);
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
