// --help: from the table.
#include <fmt/format.h>

#include <algorithm>

#include "launcher/cli/help.h"

namespace regroup::cli {
namespace {

constexpr std::size_t kLeft = 28;   // columns of the option
constexpr std::size_t kFirst = 30;  // on the first screen
constexpr std::size_t kWidth = 80;  // of the whole

// "-np, -n, -c N|MIN:MAX"
std::string left_of(const Spec& spec) {
  std::string out;
  for (const std::string& name : spec.names) out += (out.empty() ? "" : ", ") + dashed(name);
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

std::string lines_of(const Spec& spec) {
  const std::string left = left_of(spec);
  std::string out = fmt::format("  {:<{}}", left, kLeft);
  out += left.size() > kLeft ? "\n" + std::string(kLeft + 4, ' ') : "  ";
  return out + wrapped(spec.help) + "\n";
}

std::string section(const GroupText& group) {
  std::string out;
  for (const Spec& spec : table()) {
    if (spec.group == group.group) out += lines_of(spec);
  }
  return fmt::format("{} ({}):\n{}", group.title, group.name, out);
}

// An option, which may mean two things.
std::string entries_of(const std::string& name) {
  const Spec* const first = find_option(name, spec::Compat::kOpenMpi);
  const Spec* const second = find_option(name, spec::Compat::kMpich);
  const std::string out = first != nullptr ? lines_of(*first) : "";
  return second == nullptr || second == first ? out : out + lines_of(*second);
}

constexpr std::string_view kUsage =
    "usage: regroup [OPTIONS] PROGRAM [ARGUMENTS] [: [OPTIONS] PROGRAM ...]\n"
    "       regroup COMMAND [ARGUMENTS]\n"
    "Run a program on several processors or hosts, as mpirun does, or train\n"
    "elastically: members may die, leave and join while the training continues.\n"
    "\n"
    "  regroup -np 4 ./a.out                   4 ranks; the job ends if one fails\n"
    "  regroup -np 2:8 python train.py         an elastic job of 2 to 8 members\n"
    "  regroup --role ps=1 --role worker=2 ... a TensorFlow cluster\n";

// A command and what it does. Those without a text print their own.
struct Command {
  std::string_view name, arguments, summary, text;
};
constexpr Command kCommands[] = {
    {"status", "[JOB]", "show members, their state and resources",
     "usage: regroup status [--json|--prometheus|--follow] [JOB]\n"
     "Show the members of a job, their use of processors, memory and GPUs, and the\n"
     "reason for each change of membership.\n"
     "  --json        print everything as one JSON object\n"
     "  --prometheus  print metrics in the text format of Prometheus\n"
     "  --follow      print a line for each change until the job ends\n"},
    {"top", "[JOB]", "show how far the training of a job is",
     "usage: regroup top [--once] [--interval SECONDS] [JOB]\n"
     "Show epoch, step, loss, speed and remaining time of an elastic job until it\n"
     "ends: on a terminal in one line that is redrawn, else in a line for each\n"
     "interval. Ctrl-C ends this command, not the job. `regroup --progress` shows the\n"
     "same line.\n"
     "  --once              print one line and end\n"
     "  --interval SECONDS  time between two lines (default: 1 on a terminal, else 10)\n"},
    {"resize", "MEMBERS|ps=N [JOB]", "change the number of members of an elastic job",
     "usage: regroup resize MEMBERS|ps=N [JOB]\n"
     "Set the number of members of a job of -np MIN:MAX, from MIN to MAX. Surplus\n"
     "members leave at the end of their step. In a job of Slurm or LSF, regroup\n"
     "requests the missing slots, cancels requests that are no longer needed, and\n"
     "returns hosts without members. Exit status 0: the job has accepted the size;\n"
     "members join and leave later. ps=N: set the number of servers of a parameter\n"
     "server of --role ps=MIN:MAX. Nothing is lost.\n"},
    {"notice", "MEMBER [JOB]", "let a member leave at the end of its step",
     "usage: regroup notice MEMBER [JOB]\n"
     "Let a member leave at the end of its step, as after a preemption notice for its\n"
     "host. MEMBER: its number in `regroup status`.\n"},
    {"kill-member", "MEMBER [JOB]", "kill a member with SIGKILL, to test recovery",
     "usage: regroup kill-member MEMBER|ROLE:INDEX [JOB]\n"
     "Kill a member of an elastic job or of a job of roles with SIGKILL, to test\n"
     "recovery. MEMBER: its number in `regroup status`. ROLE:INDEX: member INDEX of a\n"
     "role, worker:1 for example; ps:N is server N of a parameter server of\n"
     "--ps-memory on this host.\n"},
    {"join", "[JOB]", "lend the hosts of this allocation to a job", ""},
    {"allocation", "", "show what the allocator granted", ""},
    {"doctor", "", "examine this machine and its Python packages", ""},
    {"checkpoint", "VERB ...", "save, list, verify and export checkpoints", ""},
    {"ledger", "verify DIR", "check which samples the steps of a job used", ""},
    {"bench", "OPERATION", "measure collectives, under regroup -np N", ""},
    {"place", "", "show where ranks would run, and why", ""},
    {"topo", "", "show a machine's topology, text or picture", ""}};
// What several options and commands are for.
struct Subject {
  std::string_view name, text;
  std::vector<std::string_view> options;
};
const std::vector<Subject>& subjects() {
  static const std::vector<Subject> kSubjects = {
      {"ps",
       "Parameter server (ps):\n"
       "  regroup --role ps=1 --role worker=4 --ps-memory 1G python train.py\n"
       "The role ps is a parameter server of Regroup, for workers that call\n"
       "regroup.ps.join(). Without --ps-memory it runs your program, as TensorFlow's\n"
       "own strategy requires.\n"
       "  regroup status             servers, ranges, clients and their clocks\n"
       "  regroup resize ps=N        change the number of servers of --role ps=MIN:MAX\n"
       "  regroup checkpoint save    save the tables now\n"
       "  regroup kill-member ps:0   kill a server, to test recovery\n",
       {"role", "ps-memory", "ps-hosts", "hang-timeout", "checkpoint", "checkpoint-interval"}}};
  return kSubjects;
}

std::string text_of(const Subject& subject) {
  std::string out(subject.text);
  for (const std::string_view option : subject.options)
    out += lines_of(*find_option(option, spec::Compat::kOpenMpi));
  return out;
}

constexpr std::string_view kJob = "JOB: the job's ID; required only if you run several.\n";

std::string commands() {
  std::string out = "\nCommands (regroup COMMAND --help):\n";
  for (const Command& each : kCommands) {
    const std::string left = fmt::format("{} {}", each.name, each.arguments);
    out += fmt::format("  {:<{}}  {}\n", left, kFirst, each.summary);
  }
  return out;
}

// Options that a new user needs, a line each.
std::string common_options() {
  std::string out = "\nCommon options:\n";
  for (const Spec& spec : table()) {
    if (spec.common != Common::kYes) continue;
    out += fmt::format("  {:<{}}  {}\n", fmt::format("{} {}", dashed(spec.names[0]), spec.value),
                       kFirst, summary(spec));
  }
  return out;
}

std::string text_of(const Command& command) {
  if (!command.text.empty()) return fmt::format("{}{}", command.text, kJob);
  return fmt::format("{}: {}; see regroup {} --help\n", command.name, command.summary,
                     command.name);
}

}  // namespace

std::vector<std::string> help_topics() {
  std::vector<std::string> out;
  for (const GroupText& group : groups()) out.emplace_back(group.name);
  for (const Subject& each : subjects()) out.emplace_back(each.name);
  for (const Command& each : kCommands) out.emplace_back(each.name);
  out.emplace_back("all");
  return out;
}

std::vector<std::string> command_names() {
  std::vector<std::string> out;
  for (const Command& each : kCommands) out.emplace_back(each.name);
  return out;
}

std::string summary(const Spec& spec) {
  return spec.help.substr(0, std::min(spec.help.find("; "), spec.help.find(" (")));
}

std::string help_text(const std::string& topic) {
  const std::string name = topic.substr(std::min(topic.find_first_not_of('-'), topic.size()));
  for (const GroupText& group : groups()) {
    if (name == group.name) return section(group);
  }
  for (const Subject& each : subjects()) {
    if (name == each.name) return text_of(each);
  }
  std::string entries = entries_of(name);
  for (const Command& each : kCommands) {
    if (name != each.name || (name != topic && !entries.empty())) continue;
    return entries.empty() ? text_of(each) : fmt::format("{}\n{}", text_of(each), entries);
  }
  if (!entries.empty()) return entries;
  std::string out(kUsage);
  if (name == "all") {
    for (const GroupText& group : groups()) out += "\n" + section(group);
    return out + commands();
  }
  std::string names;
  for (const GroupText& group : groups()) names += fmt::format(" {}", group.name);
  std::string subject_names;
  for (const Subject& each : subjects()) subject_names += fmt::format("{}, ", each.name);
  return out + common_options() + commands() +
         fmt::format(
             "\nMore: regroup --help TOPIC, where TOPIC is an option, all, {}or one of\n {}\n",
             subject_names, names);
}

}  // namespace regroup::cli
