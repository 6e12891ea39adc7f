// Which programs run, and how many members of each.
#include <fmt/format.h>

#include "base/values.h"
#include "launcher/cli/spec.h"

namespace regroup::cli {
namespace {

using base::invalid_argument;
using base::Status;

// N, or MIN:MAX for an elastic job.
Status set_count(OptionsBuilder& builder, const ParsedArgument& argument) {
  const std::string& text = argument.value();
  const std::size_t colon = text.find(':');
  spec::JobSpec& out = builder.out;
  std::uint32_t least = 0;
  std::uint32_t most = 0;
  if (colon == std::string::npos) {
    Status status = text == "0" ? Status() : base::parse_count(argument.name, text, 1, most);
    if (!status.ok()) return status;
    least = most;
  } else {
    const std::string_view whole = text;
    if (!base::read_number(whole.substr(0, colon), least) ||
        !base::read_number(whole.substr(colon + 1), most) || least == 0 || most == 0) {
      return invalid_argument(fmt::format(
          "option {} '{}': expected MIN:MAX, two whole numbers >= 1", argument.name, text));
    }
    if (least > most) return base::bad_value(argument.name, text, "expected MIN <= MAX");
  }
  if (builder.done.empty()) {
    out.elastic = colon != std::string::npos;
    out.min = least;
    out.max = most;
  } else if (colon != std::string::npos) {
    return base::bad_value(argument.name, text, "an elastic job runs exactly one program");
  }
  if (most == 0) {  // as if no number was given, as under mpirun and hydra
    builder.app.app.count.reset();
  } else {
    builder.app.app.count = most;
  }
  builder.app.count_given = argument.name + " " + text;
  return {};
}

Status set_per_node(OptionsBuilder& builder, const ParsedArgument& argument) {
  std::uint32_t count = 0;
  if (Status status = base::parse_count(argument.name, argument.value(), 1, count); !status.ok())
    return status;
  builder.app.app.per_node = count;
  return {};
}

// torchrun binds nothing: its processes have threads.
Status set_nproc_per_node(OptionsBuilder& builder, const ParsedArgument& argument) {
  builder.torchrun = true;
  spec::BindTo& bind = builder.out.mapping.bind;
  if (bind.kind == spec::BindTo::Kind::kDefault) bind.kind = spec::BindTo::Kind::kNone;
  if (argument.value() == "auto" || argument.value() == "cpu") return {};
  if (argument.value() == "gpu")
    return base::bad_value(argument.name, argument.value(),
                           "expected a number, auto or cpu; GPUs are not counted");
  return set_per_node(builder, argument);
}

// torchrun's N or MIN:MAX hosts, of which there is one.
Status set_nodes(OptionsBuilder&, const ParsedArgument& argument) {
  const std::string& text = argument.value();
  const std::size_t colon = text.find(':');
  std::uint32_t least = 0;
  if (Status status = base::parse_count(argument.name, text.substr(0, colon), 1, least);
      !status.ok())
    return status;
  std::uint32_t most = least;
  if (colon != std::string::npos) {
    if (Status status = base::parse_count(argument.name, text.substr(colon + 1), least, most);
        !status.ok())
      return status;
  }
  if (least > 1)
    return base::bad_value(argument.name, text, "expected 1; more hosts are given by -H");
  return {};
}

}  // namespace

std::vector<Spec> member_options() {
  constexpr auto kApp = Scope::kApp;
  constexpr auto kYes = Common::kYes;
  return {
      {{"np", "n", "c"},
       "N|MIN:MAX",
       "number of members; MIN:MAX starts an elastic job with MIN to MAX members (default, and 0: "
       "one per slot, as under mpirun; a slot is a core)",
       set_count,
       kApp,
       kYes},
      {{"N", "ppn", "npernode", "perhost", "ntasks-per-node"},
       "N",
       "number of members on each host",
       set_per_node,
       kApp},
      {{"pernode"},
       "",
       "start one member on each host",
       [](OptionsBuilder& d, const ParsedArgument&) { return d.app.app.per_node = 1, Status(); },
       kApp},
      {{"nproc-per-node"},
       "N|auto",
       "number of members on each host; auto: one per slot (torchrun)",
       set_nproc_per_node,
       kApp},
      {{"virtual-local-rank"},
       "",
       "set LOCAL_RANK to 0 for all members, and CUDA_VISIBLE_DEVICES to the one of each "
       "(torchrun)",
       [](OptionsBuilder& d, const ParsedArgument&) {
         return d.out.virtual_local_rank = true, Status();
       }},
      {{"nnodes"}, "N|MIN:MAX", "number of hosts; only 1 is supported (torchrun)", set_nodes},
      {{"wdir", "wd"},
       "DIR",
       "working directory of the members (default: the current one)",
       [](OptionsBuilder& d, const ParsedArgument& g) {
         return d.app.app.wdir = g.value(), Status();
       },
       kApp,
       kYes},
      {{"path"},
       "DIRS",
       "directories to search for programs before PATH, separated by colons",
       [](OptionsBuilder& d, const ParsedArgument& g) {
         return d.app.app.search_path = g.value(), Status();
       },
       kApp},
      {{"m", "module"},
       "",
       "run PROGRAM as a Python module: python3 -m PROGRAM",
       [](OptionsBuilder& d, const ParsedArgument&) {
         return d.app.interpreter = Interpreter::kModule, Status();
       },
       kApp},
      {{"run-path"},
       "",
       "run PROGRAM by python3, whatever its name (torchrun)",
       [](OptionsBuilder& d, const ParsedArgument&) {
         return d.app.interpreter = Interpreter::kPython, Status();
       },
       kApp},
      {{"no-python"},
       "",
       "run PROGRAM itself, also if it is a .py (torchrun)",
       [](OptionsBuilder& d, const ParsedArgument&) {
         return d.app.interpreter = Interpreter::kNone, Status();
       },
       kApp},
      {{"app", "configfile"},
       "FILE",
       "read programs with their options from FILE, one per line; program options on the command "
       "line are "
       "ignored",
       [](OptionsBuilder& d, const ParsedArgument& g) { return d.app_file = g.value(), Status(); }},
  };
}

}  // namespace regroup::cli
