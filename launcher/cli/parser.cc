// Reads a command line from left to right: options, a program with its arguments, ':' and the next
// program.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/nearest.h"
#include "base/values.h"
#include "launcher/cli/finish.h"
#include "launcher/cli/help.h"
#include "launcher/cli/spec.h"

namespace regroup::cli {
namespace {

using base::invalid_argument;
using base::Status;
using Words = std::vector<std::string>;

constexpr std::size_t kMostApps = 4096;

// Names of other launchers that are called otherwise here.
struct ForeignOption {
  std::string_view name, whose, here;
};
constexpr ForeignOption kForeign[] = {{"ntasks", "srun", "-np"},
                                      {"nodes", "srun", "--nnodes"},
                                      {"export", "srun", "-x"},
                                      {"nodelist", "srun", "-H"},
                                      {"w", "srun", "-H"},
                                      {"mpi", "srun", "--compat"},
                                      {"cpu-bind", "srun", "--bind-to"},
                                      {"distribution", "srun", "--map-by"},
                                      {"label", "srun", "--prepend-rank"},
                                      {"chdir", "srun", "--wdir"},
                                      {"nrs", "jsrun", "-np"},
                                      {"rs-per-host", "jsrun", "-N"},
                                      {"tasks-per-rs", "jsrun", "-np"},
                                      {"cpu-per-rs", "jsrun", "--cpus-per-proc"},
                                      {"E", "jsrun", "-x"},
                                      {"num-proc", "horovodrun", "-np"},
                                      {"min-np", "horovodrun", "-np MIN:MAX"},
                                      {"max-np", "horovodrun", "-np MIN:MAX"}};

Status unknown_option(const std::string& given, std::string_view name, spec::Compat compat) {
  for (const ForeignOption& foreign : kForeign) {
    if (name == foreign.name) {
      return invalid_argument(fmt::format("unknown option {}, which is {}'s; use {}", given,
                                          foreign.whose, foreign.here));
    }
  }
  Words names;
  for (const Spec& spec : table()) {
    for (const std::string& each : spec.names) {
      if (find_option(each, compat) != nullptr) names.push_back(each);
    }
  }
  const std::string near = base::nearest(name, names);
  return invalid_argument(
      fmt::format("unknown option {}{}", given,
                  near.empty() ? "" : fmt::format("; did you mean {}?", dashed(near))));
}

// A topic or an option, with or without dashes; refused with the nearest name and all topics.
Status check_topic(const std::string& word, spec::Compat compat) {
  const std::string name = word.substr(std::min(word.find_first_not_of('-'), word.size()));
  const Words topics = help_topics();
  if (find_option(name, compat) != nullptr || std::ranges::find(topics, name) != topics.end())
    return {};
  Words names = topics;
  for (const Spec& spec : table()) names.insert(names.end(), spec.names.begin(), spec.names.end());
  const std::string near = base::nearest(name, names);
  return invalid_argument(fmt::format("--help {}: unknown topic{}; topics are any option, {}", word,
                                      near.empty() ? "" : fmt::format("; did you mean {}?", near),
                                      fmt::join(topics, ", ")));
}

bool is_joined(const Spec& spec, const std::string& value) {
  return spec.value == "VAR VALUE" && value.find('=') != std::string::npos;
}

// The values of an option from args[i] on, after `first` if it stood behind an equals sign.
Status read_values(const Spec& spec, const Words& args, std::size_t& i,
                   std::optional<std::string> first, spec::Compat compat,
                   ParsedArgument& argument) {
  if (spec.value.empty()) {
    return first ? base::bad_value(argument.name + "=" + *first, "", "takes no value") : Status();
  }
  if (first) argument.values.push_back(std::move(*first));
  if (spec.value.starts_with('[')) {
    if (argument.values.empty()) {
      const bool program = i >= args.size() || args[i].find('/') != std::string::npos ||
                           (i + 1 < args.size() && !check_topic(args[i], compat).ok());
      if (program) return {};
      argument.values.push_back(args[i++]);
    }
    return check_topic(argument.value(), compat);
  }
  const Words names = value_names(spec);
  while (argument.values.size() < names.size()) {
    if (!argument.values.empty() && is_joined(spec, argument.values[0])) break;
    if (i == args.size())
      return base::bad_value(argument.name, "",
                             fmt::format("{} is missing", names[argument.values.size()]));
    argument.values.push_back(args[i++]);
  }
  return {};
}

// An option that may stand once, by its first name.
struct SingleOption {
  std::string_view name;
  bool replaces;  // else Open MPI, too, refuses a second one
};
constexpr SingleOption kOnce[] = {{"np", true},      {"N", true},      {"wdir", true},
                                  {"timeout", true}, {"map-by", true}, {"rank-by", true},
                                  {"bind-to", true}, {"hosts", false}, {"hostfile", false}};

// A second one: hydra refuses it. Under Open MPI 4 the last one counts; 5 takes the first or
// refuses, so it is told.
Status check_repeated(OptionsBuilder& builder, const Spec& spec, const ParsedArgument& argument) {
  const auto once = std::find_if(std::begin(kOnce), std::end(kOnce), [&](const SingleOption& each) {
    return each.name == spec.names[0];
  });
  if (once == std::end(kOnce)) return {};
  LastValues& last = spec.scope == Scope::kApp ? builder.app.last : builder.last;
  const auto [before, first] = last.try_emplace(&spec, argument.values);
  if (first) return {};
  if (builder.mpich() || !once->replaces)
    return builder.refuse(kBadHostFile,
                          base::bad_value(argument.name, argument.value(), "given twice"));
  const bool adds = argument.value().starts_with(':');  // --map-by core --map-by :PE=2
  if (before->second != argument.values && !adds) {
    builder.out.notes.push_back(fmt::format("{}: given twice; {} is used, {} is ignored",
                                            argument.name, argument.value(), before->second[0]));
  }
  before->second = argument.values;
  return {};
}

// A World of fixed size heeds them, too.
bool of_any_world(const Spec& spec) {
  constexpr std::array<std::string_view, 16> kNames = {"shards",
                                                       "seed",
                                                       "reproducible",
                                                       "plane",
                                                       "reduce",
                                                       "checkpoint",
                                                       "checkpoint-shared",
                                                       "checkpoint-interval",
                                                       "checkpoint-memory",
                                                       "checkpoint-keep",
                                                       "checkpoint-keep-every",
                                                       "ledger",
                                                       "audit",
                                                       "timeline",
                                                       "ready-timeout",
                                                       "hang-timeout"};
  return std::ranges::find(kNames, spec.names[0]) != kNames.end();
}

// From here on the argument reads as if the new name and value had been written; a note says so.
void use_new_name(OptionsBuilder& builder, const RenamedOption& renamed, ParsedArgument& argument) {
  const std::string before = fmt::format("{} {}", argument.name, argument.value());
  argument.name = dashed(renamed.name);
  if (argument.value() == renamed.old_value) argument.values[0] = renamed.value;
  builder.out.notes.push_back(
      fmt::format("{} is now {} {}", before, argument.name, argument.value()));
}

bool of_program(const Spec& spec) {
  return spec.scope == Scope::kApp && spec.group != Group::kEnvironment &&
         spec.group != Group::kHosts;
}

// One option at args[i]; leaves i behind it and its values.
Status parse_option(OptionsBuilder& builder, const Words& args, std::size_t& i) {
  const std::string& written = args[i++];
  std::string name = written.substr(written.starts_with("--") ? 2 : 1);
  std::optional<std::string> value;
  if (const std::size_t equals = name.find('='); equals != std::string::npos) {
    value = name.substr(equals + 1);
    name.resize(equals);
  }
  const Spec* spec = find_option(name, builder.out.compat);
  if (spec == nullptr) return unknown_option(written, name, builder.out.compat);
  ParsedArgument argument{written.substr(0, written.find('=')), {}};
  if (Status status = read_values(*spec, args, i, std::move(value), builder.out.compat, argument);
      !status.ok())
    return status;
  if (const RenamedOption* renamed = find_renamed(name)) use_new_name(builder, *renamed, argument);
  if (spec->scope == Scope::kJob && !builder.done.empty()) {
    builder.out.notes.push_back(
        fmt::format("{} applies to the whole job: ignored after the first program", argument.name));
    return {};
  }
  if (Status status = check_repeated(builder, *spec, argument); !status.ok()) return status;
  if (of_program(*spec)) builder.app.options.push_back(argument.name);
  if (spec->group == Group::kElastic)
    (of_any_world(*spec) ? builder.out.world_options : builder.out.elastic_options)
        .push_back(argument.name);
  return spec->apply(builder, argument);
}

bool is_option(const std::string& word) { return word.size() > 1 && word[0] == '-'; }

// Options and a program from args[i] to the next ':'; leaves i there.
Status parse_app(OptionsBuilder& builder, const Words& args, std::size_t& i) {
  builder.app = {};
  while (i < args.size() && is_option(args[i])) {
    if (args[i] == "--" && ++i > 0) break;
    if (Status status = parse_option(builder, args, i); !status.ok()) return status;
    if (builder.verb != Verb::kRun) return {};
  }
  while (i < args.size() && args[i] != ":") builder.app.app.command.push_back(args[i++]);
  return {};
}

Status keep_app(OptionsBuilder& builder) {
  const Words& command = builder.app.app.command;
  if (command.empty())
    return invalid_argument("no program was given: regroup [OPTIONS] PROGRAM [ARGUMENTS]");
  if (command[0].empty()) return invalid_argument("the program's name is empty");
  if (builder.done.size() == kMostApps)
    return invalid_argument(fmt::format("more than {} programs", kMostApps));
  builder.done.push_back(std::move(builder.app));
  return {};
}

// The words of a line of an app file, which may hold several programs.
Status parse_line(OptionsBuilder& builder, const Words& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (Status status = parse_app(builder, words, i); !status.ok()) return status;
    if (builder.verb != Verb::kRun) return invalid_argument("this option is not allowed in a file");
    if (Status status = keep_app(builder); !status.ok()) return status;
  }
  return {};
}

Status parse_app_file(OptionsBuilder& builder) {
  const std::string path = std::exchange(builder.app_file, "");
  if (!builder.app.app.command.empty() || builder.app.app.count) {
    builder.out.notes.push_back(
        fmt::format("--app {}: the programs on the command line are ignored", path));
  }
  if (!builder.context.read_file)
    return base::bad_value("--app", path, "files cannot be read here");
  auto text = builder.context.read_file(path);
  if (!text.ok()) return base::bad_value("--app", path, text.status().message());
  Words words;
  std::size_t begins = 1;  // the first of the lines that `words` stand in
  const Words lines = base::split(*text, "\n");
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Words more = base::file_words(lines[i]);
    const bool comment = more.empty() && !base::trim(lines[i]).empty();
    if (words.empty()) begins = i + 1;
    if (comment && !words.empty()) continue;  // between lines that belong together
    words.insert(words.end(), more.begin(), more.end());
    if (!more.empty() && more.back() == "\\" &&
        i + 1 < lines.size()) {  // it goes on in the next one
      words.pop_back();
      continue;
    }
    Status status = parse_line(builder, std::exchange(words, {}));
    if (status.ok() && !builder.app_file.empty())
      status = invalid_argument("an app file must not name another");
    if (!status.ok())
      return invalid_argument(fmt::format("{}, line {}: {}", path, begins, status.message()));
  }
  if (builder.done.empty()) return invalid_argument(fmt::format("{}: contains no program", path));
  return {};
}

Status parse_programs(OptionsBuilder& builder, const Words& args) {
  std::size_t i = 0;
  do {
    if (Status status = parse_app(builder, args, i); !status.ok()) return status;
    if (builder.verb != Verb::kRun) return {};
    if (!builder.app_file.empty()) return parse_app_file(builder);
    const bool job_file =
        !builder.out.job_file.empty() && builder.done.empty() && builder.app.app.command.empty();
    if (job_file && i == args.size()) return {};
    if (Status status = keep_app(builder); !status.ok()) return status;
  } while (i++ < args.size());
  return {};
}

}  // namespace

base::Result<CommandLine> parse_job(const Words& args, const ParseContext& context,
                                    spec::Compat compat, int& exit_status) {
  OptionsBuilder builder{.context = context};
  builder.out.compat = compat;
  builder.out.environment = context.environment;
  builder.torchrun = context.program.ends_with("torchrun");
  Status status = parse_programs(builder, args);
  if (status.ok() && builder.verb == Verb::kRun) status = finish(builder);
  if (status.ok())
    return CommandLine{.verb = builder.verb,
                       .job = std::move(builder.out),
                       .control = {},
                       .topic = std::move(builder.topic),
                       .words = {},
                       .environment = {}};
  exit_status = builder.mpich() ? spec::kHydraFailed : builder.exit_status;
  return status;
}

}  // namespace regroup::cli
