// By which name we were called, and the commands that speak to a running job.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/nearest.h"
#include "base/values.h"
#include "launcher/cli/finish.h"
#include "launcher/cli/help.h"
#include "launcher/cli/parse.h"

namespace regroup::cli {
namespace {

using base::invalid_argument;
using base::Status;
using Words = std::vector<std::string>;

struct Control {
  std::string_view name;
  Verb verb;
  std::string_view number;  // what its first argument means; "": it has none

  [[nodiscard]] Words options() const {
    if (verb == Verb::kStatus) return {"json", "prometheus", "follow", "help"};
    if (verb == Verb::kTop) return {"interval", "once", "help"};
    return {"help"};
  }
};
constexpr Control kControls[] = {{"status", Verb::kStatus, ""},
                                 {"top", Verb::kTop, ""},
                                 {"resize", Verb::kResize, "MEMBERS"},
                                 {"notice", Verb::kNotice, "MEMBER"},
                                 {"kill-member", Verb::kKillMember, "MEMBER"}};

// Verbs whose words are read elsewhere.
constexpr std::pair<std::string_view, Verb> kOthers[] = {
    {"bench", Verb::kBench},   {"checkpoint", Verb::kCheckpoint},
    {"ledger", Verb::kLedger}, {"place", Verb::kPlace},
    {"topo", Verb::kTopo},     {"allocation", Verb::kAllocation},
    {"doctor", Verb::kDoctor}, {"join", Verb::kJoin}};

Status unknown_option_of(const Control& control, const std::string& arg) {
  const std::string near = base::nearest(arg.substr(arg.find_first_not_of('-')), control.options());
  return invalid_argument(
      fmt::format("{}: unknown option {}{}", control.name, arg,
                  near.empty() ? "" : fmt::format("; did you mean --{}?", near)));
}

constexpr base::Duration kLeastInterval = std::chrono::milliseconds(100);
constexpr base::Duration kMostInterval = std::chrono::hours(24);

// An option of `regroup top` at args[i]; leaves i at its last word. False: it is none.
base::Result<bool> read_top_option(const Words& args, std::size_t& i, ControlRequest& out) {
  const std::string& arg = args[i];
  if (arg == "--once" || arg == "-once") return out.once = true;
  const std::size_t equals = std::min(arg.find('='), arg.size());
  const std::string_view name = std::string_view(arg).substr(0, equals);
  if (name != "--interval" && name != "-interval") return false;
  if (equals == arg.size() && i + 1 == args.size())
    return invalid_argument("top: --interval: SECONDS is missing");
  const std::string value = equals < arg.size() ? arg.substr(equals + 1) : args[++i];
  base::Duration interval{};
  if (!base::parse_seconds(name, value, interval).ok() || interval < kLeastInterval ||
      interval > kMostInterval)
    return invalid_argument(
        fmt::format("top: --interval {}: expected 0.1 to 86400 seconds", value));
  out.interval = interval;
  return true;
}

// Options of a control command; the other words are returned.
base::Result<Words> control_words(const Control& control, const Words& args, CommandLine& out) {
  Words words;
  for (std::size_t i = 1; i < args.size(); ++i) {
    const std::string& arg = args[i];
    if (arg == "--help" || arg == "-help" || arg == "-h") {
      out.verb = Verb::kHelp;
      out.topic = control.name;
      return Words();
    }
    if (control.verb == Verb::kTop) {
      REGROUP_ASSIGN_OR_RETURN(const bool read, read_top_option(args, i, out.control));
      if (read) continue;
    }
    if (control.verb == Verb::kStatus && (arg == "--json" || arg == "-json")) {
      out.control.json = true;
    } else if (control.verb == Verb::kStatus && (arg == "--prometheus" || arg == "-prometheus")) {
      out.control.prometheus = true;
    } else if (control.verb == Verb::kStatus && (arg == "--follow" || arg == "-follow")) {
      out.control.follow = true;
    } else if (arg.starts_with('-') && arg.size() > 1 && (arg[1] < '0' || arg[1] > '9')) {
      return unknown_option_of(control, arg);
    } else {
      words.push_back(arg);
    }
  }
  return words;
}

// "worker:1": a name, a colon and digits.
bool is_role_member(std::string_view word) {
  const std::size_t colon = word.find(':');
  std::uint32_t index = 0;
  return colon != word.npos && colon > 0 && base::read_number(word.substr(colon + 1), index);
}

Status parse_control(const Control& control, const Words& args, CommandLine& out) {
  out.verb = control.verb;
  auto words = control_words(control, args, out);
  if (!words.ok() || out.verb == Verb::kHelp) return words.status();
  if (!control.number.empty()) {
    if (words->empty())
      return invalid_argument(fmt::format("{}: {} is missing", control.name, control.number));
    const std::uint32_t least = control.verb == Verb::kResize ? 1 : 0;
    out.control.servers = least == 1 && (*words)[0].starts_with("ps=");
    if (out.control.servers) (*words)[0].erase(0, 3);
    if (control.verb == Verb::kKillMember) out.control.member = (*words)[0];
    if (is_role_member(out.control.member)) {
      // The job says whether it has such a member.
    } else if (!base::read_number((*words)[0], out.control.number) || out.control.number < least) {
      return invalid_argument(fmt::format("{}: {}: expected a whole number >= {}, got \"{}\"",
                                          control.name, control.number, least, (*words)[0]));
    }
    words->erase(words->begin());
  }
  if (words->size() > 1)
    return invalid_argument(fmt::format("{}: unexpected argument '{}'", control.name, (*words)[1]));
  if (!words->empty()) out.control.job = (*words)[0];
  return {};
}

std::string_view last_part(std::string_view path) {
  return path.substr(path.find_last_of('/') + 1);
}

bool is_hydra(std::string_view name) {
  return name.ends_with(".hydra") || name.ends_with(".mpich");
}

bool is_mpi(std::string_view name) {
  return name.starts_with("mpirun") || name.starts_with("mpiexec");
}

}  // namespace

base::Result<CommandLine> parse_command_line(const Words& args, const ParseContext& context,
                                             int* exit_status) {
  const std::string_view name = last_part(context.program);
  const bool own_name = !is_mpi(name);  // only then a first word may be a command of ours
  CommandLine out;
  out.environment = context.environment;
  for (const Control& control : kControls) {
    if (!own_name || args.empty() || args[0] != control.name) continue;
    if (Status status = parse_control(control, args, out); !status.ok()) return status;
    return out;
  }
  constexpr Control kSave{"checkpoint save", Verb::kSave, ""};
  if (own_name && args.size() > 1 && args[0] == "checkpoint" && args[1] == "save") {
    if (Status status = parse_control(kSave, {args.begin() + 1, args.end()}, out); !status.ok())
      return status;
    if (out.verb == Verb::kSave) return out;
    out.verb = Verb::kCheckpoint;
    out.words = {"--help"};
    return out;
  }
  for (const auto& [verb, meaning] : kOthers) {
    if (!own_name || args.empty() || args[0] != verb) continue;
    out.verb = meaning;
    out.words.assign(args.begin() + 1, args.end());
    return out;
  }
  Words words = args;
  if (own_name && !words.empty() && words.size() <= 2 && words[0] == "help") words[0] = "--help";
  int ignored = 0;
  auto command =
      parse_job(words, context, is_hydra(name) ? spec::Compat::kMpich : spec::Compat::kOpenMpi,
                exit_status != nullptr ? *exit_status : ignored);
  if (command.ok() && own_name && !words.empty() && !words[0].starts_with('-'))
    command->job.like_command = base::nearest(words[0], command_names());
  return command;
}

std::string version_text(const std::string& program, const std::string& version) {
  const std::string_view name = last_part(program);
  if (!is_mpi(name)) return fmt::format("regroup {}\n", version);
  return fmt::format("{} (regroup {}, with the options of {})\n", name, version,
                     is_hydra(name) ? "MPICH's HYDRA" : "Open MPI");
}

}  // namespace regroup::cli
