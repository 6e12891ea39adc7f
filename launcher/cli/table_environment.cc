// What members find in their environment. All of this process's is passed on unless said otherwise.
#include <fmt/format.h>

#include <algorithm>

#include "base/status.h"
#include "base/values.h"
#include "launcher/cli/spec.h"

namespace regroup::cli {
namespace {

using base::invalid_argument;
using base::Status;
using ChangeKind = EnvironmentChange::Kind;
using Changes = std::vector<EnvironmentChange>;

constexpr std::string_view kMca = "OMPI_MCA_";

Status refuse_name(const ParsedArgument& argument, std::string_view name) {
  if (!name.empty() && name.find('=') == std::string_view::npos) return {};
  return base::bad_value(argument.name, argument.value(), "expected the name of a variable");
}

// VAR, VAR=VALUE or VAR*.
Status export_variable(OptionsBuilder& builder, const ParsedArgument& argument) {
  const std::string& text = argument.value();
  const std::size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  if (Status status = refuse_name(argument, name); !status.ok()) return status;
  if (equals != std::string::npos) {
    const std::string value = text.substr(equals + 1);
    const auto before = std::ranges::find_if(builder.app.changes, [&](const auto& change) {
      return change.kind == ChangeKind::kSet && change.name == name && change.value != value;
    });
    if (before != builder.app.changes.end())
      builder.out.notes.push_back(fmt::format(
          "{} {}: given twice; the last value counts, as under Open MPI 4 (5 takes the first)",
          argument.name, name));
    builder.app.changes.push_back({ChangeKind::kSet, name, value, ""});
    return {};
  }
  if (!name.ends_with('*') && builder.context.environment.count(name) == 0) {
    builder.out.notes.push_back(
        fmt::format("{} {}: not exported, since the variable is not set", argument.name, name));
  }
  builder.app.changes.push_back({ChangeKind::kExport, name, "", ""});
  return {};
}

// NAME VALUE, or NAME=VALUE in one word.
Status set_variable(Changes& changes, const ParsedArgument& argument) {
  const std::string& text = argument.value();
  const std::size_t equals = text.find('=');
  if (Status status = refuse_name(argument, std::string_view(text).substr(0, equals)); !status.ok())
    return status;
  const std::string value = argument.values.size() > 1    ? argument.values[1]
                            : equals != std::string::npos ? text.substr(equals + 1)
                                                          : "";
  changes.push_back({ChangeKind::kSet, text.substr(0, equals), value, ""});
  return {};
}

Status unset_variable(OptionsBuilder& builder, const ParsedArgument& argument) {
  if (Status status = refuse_name(argument, argument.value()); !status.ok()) return status;
  builder.app.changes.push_back({ChangeKind::kUnset, argument.value(), "", ""});
  return {};
}

// NAME[c] VALUE: c separates the old from the new; without brackets it is a colon.
Status join_variable(OptionsBuilder& builder, const ParsedArgument& argument, ChangeKind kind) {
  std::string name = argument.value();
  std::string separator = ":";
  if (const std::size_t bracket = name.find('[');
      bracket != std::string::npos && name.ends_with(']')) {
    separator = name.substr(bracket + 1, name.size() - bracket - 2);
    name.resize(bracket);
  }
  if (Status status = refuse_name(argument, name); !status.ok()) return status;
  builder.app.changes.push_back({kind, name, argument.values[1], separator});
  return {};
}

Status pass_list(ExportedVariables& passed, const ParsedArgument& argument) {
  passed.all = false;
  for (std::string& name : base::split(argument.value(), ",")) {
    if (!name.empty()) passed.names.insert(std::move(name));
  }
  return {};
}

// A parameter has one value: both Open MPIs refuse a second one.
Status set_parameter(OptionsBuilder& builder, Changes& changes, const std::string& name,
                     const std::string& value) {
  for (const EnvironmentChange& before : changes) {
    if (before.kind != ChangeKind::kMca || before.name != name || before.value == value) continue;
    return builder.refuse(
        kBadParameter,
        invalid_argument(fmt::format("{} is given twice, as {} and as {}; expected one value", name,
                                     before.value, value)));
  }
  changes.push_back({ChangeKind::kMca, name, value, ""});
  return {};
}

Status set_mca(OptionsBuilder& builder, Changes& changes, const ParsedArgument& argument,
               std::string_view prefix) {
  if (Status status = refuse_name(argument, argument.value()); !status.ok()) return status;
  return set_parameter(builder, changes, fmt::format("{}{}", prefix, argument.value()),
                       argument.values[1]);
}

Status set_app_mca(OptionsBuilder& builder, const ParsedArgument& argument) {
  return set_mca(builder, builder.app.changes, argument, kMca);
}
Status set_job_mca(OptionsBuilder& builder, const ParsedArgument& argument) {
  return set_mca(builder, builder.changes, argument, kMca);
}

// One line of a file of --tune: "-mca k v -x A=b", or "k = v".
Status tune_line(OptionsBuilder& builder, std::string_view line) {
  if (!line.starts_with('-')) {
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos)
      return invalid_argument(fmt::format("'{}': expected KEY = VALUE", line));
    const std::string key(base::trim(line.substr(0, equals)));
    if (key.empty()) return invalid_argument(fmt::format("'{}': expected KEY = VALUE", line));
    return set_parameter(builder, builder.changes, std::string(kMca) + key,
                         std::string(base::trim(line.substr(equals + 1))));
  }
  REGROUP_ASSIGN_OR_RETURN(auto words, base::shell_words(line));
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string name = words[i].substr(words[i].starts_with("--") ? 2 : 1);
    const std::size_t left = words.size() - i - 1;
    if (name == "x" && left >= 1) {
      if (Status status = set_variable(builder.changes, {"-x", {words[i + 1]}}); !status.ok())
        return status;
      i += 1;
    } else if ((name == "mca" || name == "gmca") && left >= 2) {
      const ParsedArgument argument{"--mca", {words[i + 1], words[i + 2]}};
      if (Status status = set_job_mca(builder, argument); !status.ok()) {
        return status;
      }
      i += 2;
    } else {
      return invalid_argument(
          fmt::format("'{}': expected -mca KEY VALUE or -x VAR=VALUE", words[i]));
    }
  }
  return {};
}

constexpr int kNoTuneFile = 243;  // Open MPI 5; 4.1 warns and goes on

Status read_tuning(OptionsBuilder& builder, const ParsedArgument& argument) {
  for (const std::string& path : base::split(argument.value(), ",")) {
    if (!builder.context.read_file)
      return base::bad_value(argument.name, path, "files cannot be read here");
    auto text = builder.context.read_file(path);
    if (!text.ok())
      return builder.refuse(kNoTuneFile,
                            base::bad_value(argument.name, path, text.status().message()));
    std::size_t number = 0;
    for (const std::string& whole : base::split(*text, "\n")) {
      ++number;
      const std::string_view line = base::trim(whole);
      if (line.empty() || line.starts_with('#')) continue;
      if (Status status = tune_line(builder, line); !status.ok()) {
        return invalid_argument(fmt::format("{}, line {}: {}", path, number, status.message()));
      }
    }
  }
  return {};
}

// regroup_torch, which torch imports with itself, reads the variable.
Status set_torch_backend(OptionsBuilder& builder, const ParsedArgument& argument) {
  bool replace = false;
  REGROUP_RETURN_IF_ERROR(
      base::parse_word(argument.name, argument.value(), "replace", "as-is", replace));
  if (replace)
    builder.changes.push_back({ChangeKind::kSet, "REGROUP_TORCH_BACKEND", "replace", ""});
  return {};
}

// Programs and libraries of an MPI that is installed elsewhere; perhaps regroup, too.
Status set_prefix(OptionsBuilder& builder, const ParsedArgument& argument) {
  if (builder.out.agent_prefix.empty()) builder.out.agent_prefix = argument.value();
  builder.app.changes.push_back({ChangeKind::kPrepend, "PATH", argument.value() + "/bin", ":"});
  builder.app.changes.push_back(
      {ChangeKind::kPrepend, "LD_LIBRARY_PATH", argument.value() + "/lib", ":"});
  return {};
}

ExportedVariables& passed_of(AppBuilder& app) {
  return app.passed ? *app.passed : app.passed.emplace();
}

}  // namespace

std::vector<Spec> environment_options() {
  using D = OptionsBuilder;
  using G = const ParsedArgument;
  constexpr auto kApp = Scope::kApp;
  constexpr auto kYes = Common::kYes;
  return {
      {{"x"},
       "VAR[=VALUE]",
       "set an environment variable of the members; the members inherit this environment in any "
       "case",
       export_variable,
       kApp,
       kYes},
      {{"set-env"},
       "VAR=VALUE",
       "set an environment variable of the members",
       [](D& d, G& g) { return set_variable(d.app.changes, g); },
       kApp},
      {{"unset-env"},
       "VAR|VAR*",
       "unset an environment variable; VAR*: all whose names begin with VAR",
       unset_variable,
       kApp},
      {{"append-env"},
       "VAR[C] VALUE",
       "append VALUE to a variable, separated by the character C (default: a colon)",
       [](D& d, G& g) { return join_variable(d, g, ChangeKind::kAppend); },
       kApp},
      {{"prepend-env"},
       "VAR[C] VALUE",
       "prepend VALUE to a variable, separated by the character C (default: a colon)",
       [](D& d, G& g) { return join_variable(d, g, ChangeKind::kPrepend); },
       kApp},
      {{"env"},
       "VAR VALUE",
       "set an environment variable of this program's members (hydra)",
       [](D& d, G& g) { return set_variable(d.app.changes, g); },
       kApp},
      {{"torch-backend"},
       "replace|as-is",
       "replace: PyTorch process groups that would use Gloo for CPU tensors use Regroup's backend "
       "(default: as-is)",
       set_torch_backend},
      {{"genv"},
       "VAR VALUE",
       "set an environment variable of all members (hydra)",
       [](D& d, G& g) { return set_variable(d.changes, g); }},
      {{"envlist"},
       "VARS",
       "pass only the listed variables, A,B,C, to this program's members",
       [](D& d, G& g) { return pass_list(passed_of(d.app), g); },
       kApp},
      {{"genvlist"},
       "VARS",
       "pass only the listed variables, A,B,C, to the members",
       [](D& d, G& g) { return pass_list(d.passed, g); }},
      {{"envnone"},
       "",
       "pass no variable of this environment to this program's members",
       [](D& d, G&) {
         return passed_of(d.app) = {false, {}}, Status();
       },
       kApp},
      {{"genvnone"},
       "",
       "pass no variable of this environment to the members",
       [](D& d, G&) {
         return d.passed = {false, {}}, Status();
       }},
      {{"envall"},
       "",
       "pass the whole environment to this program's members (default)",
       [](D& d, G&) { return passed_of(d.app) = {}, Status(); },
       kApp},
      {{"genvall"},
       "",
       "pass the whole environment to the members (default)",
       [](D& d, G&) { return d.passed = {}, Status(); }},
      {{"mca", "omca"},
       "KEY VALUE",
       "set an Open MPI parameter for this program; sets OMPI_MCA_KEY",
       set_app_mca,
       kApp},
      {{"gmca", "gomca"},
       "KEY VALUE",
       "set an Open MPI parameter for all programs; sets OMPI_MCA_KEY",
       set_job_mca},
      {{"prtemca", "gprtemca"},
       "KEY VALUE",
       "set a PRRTE parameter; sets PRTE_MCA_KEY",
       [](D& d, G& g) { return set_mca(d, d.app.changes, g, "PRTE_MCA_"); },
       kApp},
      {{"pmixmca", "gpmixmca"},
       "KEY VALUE",
       "set a PMIx parameter; sets PMIX_MCA_KEY",
       [](D& d, G& g) { return set_mca(d, d.app.changes, g, "PMIX_MCA_"); },
       kApp},
      {{"tune", "am", "amca"},
       "FILES",
       "read Open MPI parameters from FILES, separated by commas; a line is KEY = VALUE or -mca "
       "KEY VALUE -x "
       "VAR=VALUE",
       read_tuning},
      {{"prefix", "app-prefix"},
       "DIR",
       "prepend DIR/bin to PATH and DIR/lib to LD_LIBRARY_PATH; on other hosts, run "
       "DIR/bin/regroup if it "
       "exists",
       set_prefix,
       kApp},
  };
}

}  // namespace regroup::cli
