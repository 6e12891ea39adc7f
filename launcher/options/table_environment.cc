// What members find in their environment. All of this process's is passed on unless said otherwise.
#include <fmt/format.h>

#include "launcher/options/spec.h"
#include "launcher/options/values.h"

namespace regroup::launcher {
namespace {

using core::invalid_argument;
using core::Status;
using ChangeKind = EnvironmentChange::Kind;
using Changes = std::vector<EnvironmentChange>;

constexpr std::string_view kMca = "OMPI_MCA_";

Status refuse_name(const Given& given, std::string_view name) {
  if (!name.empty() && name.find('=') == std::string_view::npos) return {};
  return bad_value(given.name, given.value(), "a variable's name is missing");
}

// VAR, VAR=VALUE or VAR*.
Status export_variable(Draft& draft, const Given& given) {
  const std::string& text = given.value();
  const std::size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  if (Status status = refuse_name(given, name); !status.ok()) return status;
  if (equals != std::string::npos) {
    draft.app.changes.push_back({ChangeKind::kSet, name, text.substr(equals + 1), ""});
    return {};
  }
  if (!name.ends_with('*') && draft.around.environment.count(name) == 0) {
    draft.out.notes.push_back(fmt::format("{} {}: there is no such variable to export", given.name, name));
  }
  draft.app.changes.push_back({ChangeKind::kExport, name, "", ""});
  return {};
}

// NAME VALUE, or NAME=VALUE in one word.
Status set_variable(Changes& changes, const Given& given) {
  const std::string& text = given.value();
  const std::size_t equals = text.find('=');
  if (Status status = refuse_name(given, std::string_view(text).substr(0, equals)); !status.ok())
    return status;
  const std::string value = given.values.size() > 1       ? given.values[1]
                            : equals != std::string::npos ? text.substr(equals + 1)
                                                          : "";
  changes.push_back({ChangeKind::kSet, text.substr(0, equals), value, ""});
  return {};
}

Status unset_variable(Draft& draft, const Given& given) {
  if (Status status = refuse_name(given, given.value()); !status.ok()) return status;
  draft.app.changes.push_back({ChangeKind::kUnset, given.value(), "", ""});
  return {};
}

// NAME[c] VALUE: c separates the old from the new; without brackets it is a colon.
Status join_variable(Draft& draft, const Given& given, ChangeKind kind) {
  std::string name = given.value();
  std::string separator = ":";
  if (const std::size_t bracket = name.find('['); bracket != std::string::npos && name.ends_with(']')) {
    separator = name.substr(bracket + 1, name.size() - bracket - 2);
    name.resize(bracket);
  }
  if (Status status = refuse_name(given, name); !status.ok()) return status;
  draft.app.changes.push_back({kind, name, given.values[1], separator});
  return {};
}

Status pass_list(PassedOn& passed, const Given& given) {
  passed.all = false;
  for (std::string& name : split(given.value(), ",")) {
    if (!name.empty()) passed.names.insert(std::move(name));
  }
  return {};
}

// A parameter has one value: both Open MPIs refuse a second one.
Status set_parameter(Draft& draft, Changes& changes, const std::string& name, const std::string& value) {
  for (const EnvironmentChange& before : changes) {
    if (before.kind != ChangeKind::kMca || before.name != name || before.value == value) continue;
    return draft.refuse(kBadParameter, invalid_argument(fmt::format("{} is given twice: as {} and as {}",
                                                                    name, before.value, value)));
  }
  changes.push_back({ChangeKind::kMca, name, value, ""});
  return {};
}

Status set_mca(Draft& draft, Changes& changes, const Given& given, std::string_view prefix) {
  if (Status status = refuse_name(given, given.value()); !status.ok()) return status;
  return set_parameter(draft, changes, fmt::format("{}{}", prefix, given.value()), given.values[1]);
}

Status set_app_mca(Draft& draft, const Given& given) {
  return set_mca(draft, draft.app.changes, given, kMca);
}
Status set_job_mca(Draft& draft, const Given& given) { return set_mca(draft, draft.changes, given, kMca); }

// One line of a file of --tune: "-mca k v -x A=b", or "k = v".
Status tune_line(Draft& draft, std::string_view line) {
  if (!line.starts_with('-')) {
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos)
      return invalid_argument(fmt::format("'{}': KEY = VALUE is wanted", line));
    const std::string key(trim(line.substr(0, equals)));
    if (key.empty()) return invalid_argument(fmt::format("'{}': KEY = VALUE is wanted", line));
    return set_parameter(draft, draft.changes, std::string(kMca) + key,
                         std::string(trim(line.substr(equals + 1))));
  }
  auto words = shell_words(line);
  if (!words.ok()) return words.status();
  for (std::size_t i = 0; i < words->size(); ++i) {
    const std::string name = (*words)[i].substr((*words)[i].starts_with("--") ? 2 : 1);
    const std::size_t left = words->size() - i - 1;
    if (name == "x" && left >= 1) {
      if (Status status = set_variable(draft.changes, {"-x", {(*words)[i + 1]}}); !status.ok()) return status;
      i += 1;
    } else if ((name == "mca" || name == "gmca") && left >= 2) {
      const Given given{"--mca", {(*words)[i + 1], (*words)[i + 2]}};
      if (Status status = set_job_mca(draft, given); !status.ok()) {
        return status;
      }
      i += 2;
    } else {
      return invalid_argument(
          fmt::format("'{}': only -mca KEY VALUE and -x VAR=VALUE may stand here", (*words)[i]));
    }
  }
  return {};
}

Status read_tuning(Draft& draft, const Given& given) {
  for (const std::string& path : split(given.value(), ",")) {
    if (!draft.around.read_file) return bad_value(given.name, path, "no file can be read");
    auto text = draft.around.read_file(path);
    if (!text.ok()) return bad_value(given.name, path, text.status().message());
    std::size_t number = 0;
    for (const std::string& whole : split(*text, "\n")) {
      ++number;
      const std::string_view line = trim(whole);
      if (line.empty() || line.starts_with('#')) continue;
      if (Status status = tune_line(draft, line); !status.ok()) {
        return invalid_argument(fmt::format("{}, line {}: {}", path, number, status.message()));
      }
    }
  }
  return {};
}

// Programs and libraries of an MPI that is installed elsewhere; perhaps regroup, too.
Status set_prefix(Draft& draft, const Given& given) {
  if (draft.out.agent_prefix.empty()) draft.out.agent_prefix = given.value();
  draft.app.changes.push_back({ChangeKind::kPrepend, "PATH", given.value() + "/bin", ":"});
  draft.app.changes.push_back({ChangeKind::kPrepend, "LD_LIBRARY_PATH", given.value() + "/lib", ":"});
  return {};
}

PassedOn& passed_of(AppDraft& app) { return app.passed ? *app.passed : app.passed.emplace(); }

}  // namespace

std::vector<Spec> environment_options() {
  using D = Draft;
  using G = const Given;
  constexpr auto kApp = Scope::kApp;
  constexpr auto kYes = Common::kYes;
  return {
      {{"x"},
       "VAR[=VALUE]",
       "set a variable of the members; all of this environment is passed on anyway",
       export_variable,
       kApp,
       kYes},
      {{"set-env"},
       "VAR=VALUE",
       "set a variable of the members",
       [](D& d, G& g) { return set_variable(d.app.changes, g); },
       kApp},
      {{"unset-env"}, "VAR|VAR*", "take a variable away, or all that begin so", unset_variable, kApp},
      {{"append-env"},
       "VAR[C] VALUE",
       "put a value behind the one that is there, with C or a colon between",
       [](D& d, G& g) { return join_variable(d, g, ChangeKind::kAppend); },
       kApp},
      {{"prepend-env"},
       "VAR[C] VALUE",
       "put a value before the one that is there, with C or a colon between",
       [](D& d, G& g) { return join_variable(d, g, ChangeKind::kPrepend); },
       kApp},
      {{"env"},
       "VAR VALUE",
       "set a variable of this program's members; hydra's word",
       [](D& d, G& g) { return set_variable(d.app.changes, g); },
       kApp},
      {{"genv"},
       "VAR VALUE",
       "set a variable of all members; hydra's word",
       [](D& d, G& g) { return set_variable(d.changes, g); }},
      {{"envlist"},
       "VARS",
       "pass on only these variables, A,B,C, to this program's members",
       [](D& d, G& g) { return pass_list(passed_of(d.app), g); },
       kApp},
      {{"genvlist"},
       "VARS",
       "pass on only these variables, A,B,C",
       [](D& d, G& g) { return pass_list(d.passed, g); }},
      {{"envnone"},
       "",
       "pass on none of this environment to this program's members",
       [](D& d, G&) {
         return passed_of(d.app) = {false, {}}, Status();
       },
       kApp},
      {{"genvnone"},
       "",
       "pass on none of this environment",
       [](D& d, G&) {
         return d.passed = {false, {}}, Status();
       }},
      {{"envall"},
       "",
       "pass on all of this environment to this program's members, which is the default",
       [](D& d, G&) { return passed_of(d.app) = {}, Status(); },
       kApp},
      {{"genvall"},
       "",
       "pass on all of this environment, which is the default",
       [](D& d, G&) { return d.passed = {}, Status(); }},
      {{"mca", "omca"},
       "KEY VALUE",
       "a parameter of Open MPI for this program: sets OMPI_MCA_KEY",
       set_app_mca,
       kApp,
       kYes},
      {{"gmca", "gomca"}, "KEY VALUE", "a parameter of Open MPI for all programs", set_job_mca},
      {{"prtemca", "gprtemca"},
       "KEY VALUE",
       "sets PRTE_MCA_KEY",
       [](D& d, G& g) { return set_mca(d, d.app.changes, g, "PRTE_MCA_"); },
       kApp},
      {{"pmixmca", "gpmixmca"},
       "KEY VALUE",
       "sets PMIX_MCA_KEY",
       [](D& d, G& g) { return set_mca(d, d.app.changes, g, "PMIX_MCA_"); },
       kApp},
      {{"tune", "am", "amca"},
       "FILES",
       "read parameters of Open MPI from files: KEY = VALUE, or -mca KEY VALUE -x VAR=VALUE",
       read_tuning},
      {{"prefix", "app-prefix"},
       "DIR",
       "begin PATH with DIR/bin and LD_LIBRARY_PATH with DIR/lib; on other hosts DIR/bin/regroup is run, if "
       "there",
       set_prefix,
       kApp},
  };
}

}  // namespace regroup::launcher
