// One table drives parsing and --help. Names are those of mpirun where mpirun has the thing.
#include "launcher/cmd/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <utility>

#include "core/arena.h"
#include "launcher/cmd/nearest.h"

namespace regroup::cmd {
namespace {

using core::invalid_argument;
using core::Status;

Status bad(std::string_view name, std::string_view value, std::string_view wanted) {
  return invalid_argument(fmt::format("option {} {}: {}", name, value, wanted));
}

// A whole number from `least` on.
template <class T>
Status parse_number(std::string_view name, std::string_view text, T least, T& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  const bool negative = text.starts_with('-');
  if ((error != std::errc() || end != text.data() + text.size()) && !negative) {
    return bad(name, text, "a whole number is wanted");
  }
  if (negative || out < least) {
    return bad(name, text, least == 1 ? "it must be positive" : fmt::format("at least {} is wanted", least));
  }
  return {};
}

Status parse_seconds(std::string_view name, const std::string& text, core::Duration& out) {
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || !(seconds >= 0) || seconds > 1e9) {
    return bad(name, text, "a number of seconds is wanted");
  }
  out = std::chrono::duration_cast<core::Duration>(std::chrono::duration<double>(seconds));
  return {};
}

Status parse_members(std::string_view name, std::string_view text, Options& out) {
  const std::size_t colon = text.find(':');
  out.elastic = colon != std::string_view::npos;
  if (!out.elastic) {
    if (Status status = parse_number(name, text, 1U, out.min); !status.ok()) return status;
    out.max = out.min;
    return {};
  }
  const Status least = parse_number(name, text.substr(0, colon), 1U, out.min);
  const Status most = parse_number(name, text.substr(colon + 1), 1U, out.max);
  if (!least.ok() || !most.ok()) {
    return invalid_argument(
        fmt::format("option {} '{}': MIN:MAX are two positive whole numbers", name, text));
  }
  if (out.min > out.max) return bad(name, text, "MIN must not be greater than MAX");
  return {};
}

// `yes` is what the flag becomes for the word `on`.
Status parse_word(std::string_view name, std::string_view text, std::string_view on, std::string_view off,
                  bool& out) {
  if (text != on && text != off) return bad(name, text, fmt::format("{} or {} is wanted", on, off));
  out = text == on;
  return {};
}

void export_variable(const std::string& text, launcher::Environment& environment) {
  const std::size_t equals = text.find('=');
  if (equals != std::string::npos) environment[text.substr(0, equals)] = text.substr(equals + 1);
}

struct Spec {
  std::vector<std::string> names;  // the first is shown first; each with one or two dashes
  std::string value;               // its name in --help; "": a flag
  std::string help;
  Status (*apply)(Options& out, const std::string& name, const std::string& value);
};

const std::vector<Spec>& specs() {
  using O = Options;
  using S = const std::string;
  static const std::vector<Spec> kTable = {
      {{"np", "n", "c"},
       "N|MIN:MAX",
       "N members as under mpirun, or an elastic job of MIN to MAX (default: one per core)",
       [](O& o, S& name, S& v) { return parse_members(name, v, o); }},
      {{"start"},
       "N",
       "members to begin with, and to replace lost ones up to (default: min(MAX, cores))",
       [](O& o, S& name, S& v) { return parse_number(name, v, 1U, o.start); }},
      {{"replace"},
       "auto|never",
       "start a new member for a lost one (default: auto)",
       [](O& o, S& name, S& v) { return parse_word(name, v, "auto", "never", o.replace); }},
      {{"oversubscribe"},
       "",
       "allow more members than cores",
       [](O& o, S&, S&) { return o.oversubscribe = true, Status(); }},
      {{"shards"},
       "V",
       "logical shards of each batch (default: smallest power of two >= MAX)",
       [](O& o, S& name, S& v) { return parse_number(name, v, 1U, o.shards); }},
      {{"seed"},
       "S",
       "of the job's random numbers (default: 0)",
       [](O& o, S& name, S& v) { return parse_number(name, v, std::uint64_t{0}, o.seed); }},
      {{"bits"},
       "on|off",
       "off: admit members whose results may differ in the last bits (default: on)",
       [](O& o, S& name, S& v) {
         bool on = true;
         Status status = parse_word(name, v, "on", "off", on);
         o.any_fingerprint = !on;
         return status;
       }},
      {{"tag-output"},
       "",
       "begin each line with [job,rank]<stream>:",
       [](O& o, S&, S&) { return o.tag_output = true, Status(); }},
      {{"timeout"},
       "SECONDS",
       "end the job after this time",
       [](O& o, S& name, S& v) { return parse_seconds(name, v, o.timeout); }},
      {{"wait"},
       "SECONDS",
       "end an elastic job that has had fewer than MIN members for this long (default: 60)",
       [](O& o, S& name, S& v) { return parse_seconds(name, v, o.wait); }},
      {{"ready-timeout"},
       "SECONDS",
       "give up a new member that is not ready after this time (default: 300)",
       [](O& o, S& name, S& v) { return parse_seconds(name, v, o.ready_timeout); }},
      {{"orphan-timeout"},
       "SECONDS",
       "how long an elastic job goes on without its launcher (default: 10)",
       [](O& o, S& name, S& v) { return parse_seconds(name, v, o.orphan_timeout); }},
      {{"term-grace"},
       "SECONDS",
       "from SIGTERM to SIGKILL when a job is ended (default: 5)",
       [](O& o, S& name, S& v) { return parse_seconds(name, v, o.term_grace); }},
      {{"x"},
       "VAR[=VALUE]",
       "a variable of the members' environment (all of this one is passed anyway)",
       [](O& o, S&, S& v) { return export_variable(v, o.environment), Status(); }},
      {{"wdir", "wd"}, "DIR", "where the members start", [](O& o, S&, S& v) { return o.wdir = v, Status(); }},
      {{"allow-run-as-root"}, "", "accepted for mpirun's sake", [](O&, S&, S&) { return Status(); }},
      {{"quiet", "q"},
       "",
       "do not report changes of an elastic job on standard error",
       [](O& o, S&, S&) { return o.quiet = true, Status(); }},
      {{"verbose", "v"},
       "",
       "report more on standard error",
       [](O& o, S&, S&) { return o.verbose = true, Status(); }},
      {{"help", "h"}, "", "print this text", [](O& o, S&, S&) { return o.verb = Verb::kHelp, Status(); }},
      {{"version", "V"},
       "",
       "print the version",
       [](O& o, S&, S&) { return o.verb = Verb::kVersion, Status(); }},
  };
  return kTable;
}

bool elastic_only(const Spec& spec) {
  static const std::vector<std::string> kNames = {"start", "replace", "shards",        "seed",
                                                  "bits",  "wait",    "ready-timeout", "orphan-timeout"};
  return std::find(kNames.begin(), kNames.end(), spec.names[0]) != kNames.end();
}

const Spec* find_spec(std::string_view name) {
  for (const Spec& spec : specs()) {
    if (std::find(spec.names.begin(), spec.names.end(), name) != spec.names.end()) return &spec;
  }
  return nullptr;
}

Status unknown_option(const std::string& given, std::string_view name) {
  std::vector<std::string> names;
  for (const Spec& spec : specs()) names.insert(names.end(), spec.names.begin(), spec.names.end());
  const std::string near = nearest(name, names);
  const char* dashes = near.size() > 2 ? "--" : "-";
  return invalid_argument(fmt::format("unknown option {}{}", given,
                                      near.empty() ? "" : fmt::format("; did you mean {}{}?", dashes, near)));
}

// One option at args[i]; leaves i behind it.
Status parse_one(const std::vector<std::string>& args, std::size_t& i, Options& out) {
  const std::string& given = args[i++];
  std::string name = given.substr(given.starts_with("--") ? 2 : 1);
  std::optional<std::string> value;
  if (const std::size_t equals = name.find('='); equals != std::string::npos) {
    value = name.substr(equals + 1);
    name.resize(equals);
  }
  const Spec* spec = find_spec(name);
  if (spec == nullptr) return unknown_option(given, name);
  if (spec->value.empty() && value) return bad(given, "", "it takes no value");
  if (!spec->value.empty() && !value) {
    if (i == args.size()) return bad(given, "", fmt::format("{} is missing", spec->value));
    value = args[i++];
  }
  const std::string written = given.substr(0, given.find('='));
  if (elastic_only(*spec)) out.elastic_options.push_back(written);
  return spec->apply(out, written, value.value_or(""));
}

struct Control {
  const char* name;
  Verb verb;
  const char* number;  // what its first argument means; "": it has none
};
constexpr Control kControls[] = {{"status", Verb::kStatus, ""},
                                 {"resize", Verb::kResize, "MEMBERS"},
                                 {"notice", Verb::kNotice, "MEMBER"},
                                 {"kill-member", Verb::kKillMember, "MEMBER"}};

Status parse_control(const Control& control, const std::vector<std::string>& args, Options& out) {
  out.verb = control.verb;
  std::vector<std::string> words;
  for (std::size_t i = 1; i < args.size(); ++i) {
    if (args[i] == "--help" || args[i] == "-help" || args[i] == "-h") {
      out.verb = Verb::kHelp;
      return {};
    }
    if (control.verb == Verb::kStatus && (args[i] == "--json" || args[i] == "-json")) {
      out.json = true;
    } else if (control.verb == Verb::kStatus && (args[i] == "--follow" || args[i] == "-follow")) {
      out.follow = true;
    } else if (args[i].starts_with('-') && args[i].size() > 1 && (args[i][1] < '0' || args[i][1] > '9')) {
      return invalid_argument(fmt::format("unknown option {} of regroup {}", args[i], control.name));
    } else {
      words.push_back(args[i]);
    }
  }
  const std::string_view number = control.number;
  if (!number.empty()) {
    if (words.empty())
      return invalid_argument(fmt::format("regroup {}: {} is missing", control.name, number));
    const std::uint32_t least = control.verb == Verb::kResize ? 1 : 0;
    if (Status status =
            parse_number(fmt::format("{} of regroup {}", number, control.name), words[0], least, out.number);
        !status.ok()) {
      return status;
    }
    words.erase(words.begin());
  }
  if (words.size() > 1)
    return invalid_argument(fmt::format("regroup {}: what is {}?", control.name, words[1]));
  if (!words.empty()) out.job = words[0];
  return {};
}

}  // namespace

core::Result<Options> parse_options(const std::vector<std::string>& args, launcher::Environment environment) {
  Options out;
  out.environment = std::move(environment);
  for (const Control& control : kControls) {
    if (args.empty() || args[0] != control.name) continue;
    if (Status status = parse_control(control, args, out); !status.ok()) return status;
    return out;
  }
  if (args.size() == 1 && args[0] == "help") {
    out.verb = Verb::kHelp;
    return out;
  }
  std::size_t i = 0;
  while (i < args.size() && args[i].size() > 1 && args[i][0] == '-') {
    if (args[i] == "--" && ++i > 0) break;
    if (Status status = parse_one(args, i, out); !status.ok()) return status;
    if (out.verb != Verb::kRun) return out;
  }
  out.command.assign(args.begin() + static_cast<std::ptrdiff_t>(i), args.end());
  if (out.command.empty())
    return invalid_argument("no program was given: regroup [OPTIONS] PROGRAM [ARGUMENTS]");
  if (out.command[0].empty()) return invalid_argument("the program's name is empty");
  return out;
}

Status fit_to_slots(Options& options, std::uint32_t slots) {
  if (options.max == 0) options.min = options.max = slots;
  if (options.elastic && options.max >= core::kMaxSlots) {
    return invalid_argument(fmt::format("-np {}:{}: at most {} members are possible on one machine",
                                        options.min, options.max, core::kMaxSlots - 1));
  }
  if (!options.elastic && options.start != 0 && options.start != options.max) {
    return invalid_argument(
        fmt::format("--start {}: only an elastic job (-np MIN:MAX) has it", options.start));
  }
  const std::uint32_t room = options.oversubscribe ? options.max : slots;
  if (options.start == 0) {
    options.start = options.elastic ? std::max(options.min, std::min(options.max, slots)) : options.max;
  } else if (options.start < options.min || options.start > options.max) {
    return invalid_argument(fmt::format("--start {}: it must lie in the range {}:{} of -np", options.start,
                                        options.min, options.max));
  }
  if (options.start > room) {
    return invalid_argument(fmt::format(
        "{} members asked for, {} slots (cores) there; --oversubscribe allows more", options.start, slots));
  }
  if (options.elastic && options.shards == 0) options.shards = std::bit_ceil(options.max);
  if (options.elastic && options.shards > core::kMaxShards) {
    return invalid_argument(
        fmt::format("--shards {}: at most {} are possible", options.shards, core::kMaxShards));
  }
  return {};
}

std::string unheeded_options(const Options& options) {
  if (options.elastic || options.elastic_options.empty()) return "";
  return fmt::format("{}: only for an elastic job (-np MIN:MAX), ignored",
                     fmt::join(options.elastic_options, ", "));
}

launcher::Environment read_environment() {
  launcher::Environment out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos) out.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return out;
}

std::string help_text() {
  std::string out =
      "usage: regroup [OPTIONS] PROGRAM [ARGUMENTS]     run a job\n"
      "       regroup status [--json|--follow] [JOB]    what an elastic job does, and why\n"
      "       regroup resize MEMBERS [JOB]              let it have so many members\n"
      "       regroup notice MEMBER [JOB]               let a member leave at the end of its step\n"
      "       regroup kill-member MEMBER [JOB]          SIGKILL a member\n"
      "JOB may be left out if there is only one.\n\noptions (with one or two dashes):\n";
  for (const Spec& spec : specs()) {
    std::string left;
    for (const std::string& name : spec.names) {
      left += (left.empty() ? "" : ", ") + std::string(name.size() > 2 ? "--" : "-") + name;
    }
    if (!spec.value.empty()) left += " " + spec.value;
    out += fmt::format("  {:<26} {}\n", left, spec.help);
  }
  return out;
}

}  // namespace regroup::cmd
