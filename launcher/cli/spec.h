// The table of all options. It drives the parser, --help, the man page and the shells' completions.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/cli/parse.h"

namespace regroup::cli {

// In the order of --help.
enum class Group : std::uint8_t {
  kMembers,
  kEnvironment,
  kOutput,
  kHosts,
  kPlacement,
  kEnd,
  kElastic,
  kRoles,
  kGeneral,
  kElsewhere
};

struct GroupText {
  Group group;
  const char* name;   // of `--help NAME`
  const char* title;  // of its section
};
[[nodiscard]] const std::vector<GroupText>& groups();

// A change of a member's environment; they are made in order, those of the whole job first.
struct EnvironmentChange {
  enum class Kind : std::uint8_t { kSet, kExport, kUnset, kMca, kAppend, kPrepend };
  Kind kind = Kind::kSet;
  std::string name;  // kExport, kUnset: NAME* means all that begin with NAME
  std::string value;
  std::string separator;  // kAppend, kPrepend
};

// What is passed on of this process's environment.
struct ExportedVariables {
  bool all = true;
  std::set<std::string> names;  // where not all
};

struct Spec;
// The values of options where they stood last.
using LastValues = std::map<const Spec*, std::vector<std::string>>;

// What runs a program: python3 if it is a .py that cannot run by itself; python3 always
// (--run-path); python3 as a module (-m); never python3 (--no-python).
enum class Interpreter : std::uint8_t { kByName, kPython, kModule, kNone };

// One program of the command line while its options are parsed.
struct AppBuilder {
  spec::AppRequest app;
  std::vector<EnvironmentChange> changes;
  std::optional<ExportedVariables> passed;
  std::vector<spec::HostRequest> wanted;  // -H
  std::vector<std::string> roles;         // NAME=N
  std::string role_name;                  // --role NAME of torchrun, which says no number
  std::vector<std::string> mentioned;     // the names in -H, as they stand there
  LastValues last;                        // of its own options
  // As they were written, without those of the environment and of hosts.
  std::vector<std::string> options;
  std::string count_given;  // the -np that set the count, as it was written
  Interpreter interpreter = Interpreter::kByName;
};

// Exit statuses of Open MPI 5 for what it refuses; of Open MPI 4 it is always 1.
inline constexpr int kBadMapFile = 68;
inline constexpr int kContradicts = 213;
inline constexpr int kBadHostFile = 250;
inline constexpr int kBadParameter = 251;

// The prefix of --output tag-detailed, and what stands before it if there is a time, too.
inline constexpr const char* kDetailedPrefix = "[${job},${number}][${host}:${pid}]<${stream}>: ";
inline constexpr const char* kStreamPrefix = "<${stream}>: ";

// The command line while it is parsed: becomes a CommandLine by finish().
struct OptionsBuilder {
  const ParseContext& context;
  Verb verb = Verb::kRun;
  std::string topic;
  spec::JobSpec out;
  AppBuilder app;  // the one being read
  std::vector<AppBuilder> done;
  std::vector<EnvironmentChange> changes;  // of all apps
  ExportedVariables passed;
  std::vector<spec::HostRequest> listed;  // host files
  std::vector<std::string> mentioned;     // the names in them, line by line
  spec::HostNames names;                  // of this host and of others; set by resolve_hosts()
  LastValues last;                        // of options of the whole job
  int exit_status = 1;                    // of what is refused, as Open MPI has it
  std::string app_file;
  spec::Environment job_environment;  // of the programs of a job file, without what the file adds
  std::vector<std::string> ignored;   // options without meaning here, as they were written
  std::optional<std::string> log_folder;  // --log-dir
  std::string run_id = "none";            // --rdzv-id
  std::string log_role;                   // --role NAME, where it is torchrun's
  std::uint32_t most_servers = 0;         // MAX of --role ps=MIN:MAX; 0: it is no range
  bool timed_checkpoints = false;         // --checkpoint-interval has seconds, as "60s"
  bool fast_reduce = false;               // --reduce fast
  bool health = false;                    // --health; false: as REGROUP_HEALTH says
  std::uint32_t audit = 0;                // --audit, in steps; 0: none
  bool name_stream = false;               // --output timestamp: see kStreamPrefix
  bool torchrun = false;                  // its name or --nproc-per-node: a .py is always Python's
  bool mpich() const { return out.compat == spec::Compat::kMpich; }
  // `why`, which is to end with an exit status of Open MPI 5's own.
  base::Status refuse(int status, base::Status why) { return exit_status = status, std::move(why); }
};

// An option as it stands on the command line or in a file.
struct ParsedArgument {
  std::string name;  // as it was written, without its value
  std::vector<std::string> values;
  [[nodiscard]] const std::string& value() const { return values[0]; }
};

enum class Scope : std::uint8_t { kApp, kJob };  // kJob: counts before the first ':' only
enum class Dialect : std::uint8_t {
  kAny,
  kOpenMpi,
  kMpich
};                                               // where a name means different things
enum class Common : std::uint8_t { kYes, kNo };  // its summary stands in a plain --help

struct Spec {
  std::vector<std::string> names;  // without dashes; the first is shown first
  std::string value;               // "": a flag; several words: several values; [X]: may be missing
  std::string help;  // imperative or noun phrase; details behind "; ", last "(default: X)"
  base::Status (*apply)(OptionsBuilder& builder, const ParsedArgument& argument);
  Scope scope = Scope::kJob;
  Common common = Common::kNo;
  Dialect dialect = Dialect::kAny;
  Group group = Group::kElsewhere;  // set by table()
};

// Parts of the table, one file each.
[[nodiscard]] std::vector<Spec> member_options();
[[nodiscard]] std::vector<Spec> environment_options();
[[nodiscard]] std::vector<Spec> output_options();
[[nodiscard]] std::vector<Spec> host_options();
[[nodiscard]] std::vector<Spec> placement_options();
[[nodiscard]] std::vector<Spec> end_options();
[[nodiscard]] std::vector<Spec> elastic_options();
[[nodiscard]] std::vector<Spec> role_options();
[[nodiscard]] std::vector<Spec> general_options();
[[nodiscard]] std::vector<Spec> elsewhere_options();

[[nodiscard]] const std::vector<Spec>& table();

// An option whose old name is accepted for one release, with a note, and stands in no text.
struct RenamedOption {
  std::string_view old_name;
  std::string_view name;
  std::string_view old_value = {};  // "": every value is still called the same
  std::string_view value = {};
};
// Null: no option was once called `name`, which may be written with _ for -.
[[nodiscard]] const RenamedOption* find_renamed(std::string_view name);

// Names, also old ones, may be written with _ for -. Null: no option is called so.
[[nodiscard]] const Spec* find_option(std::string_view name, spec::Compat compat);

// "-np" or "--oversubscribe": with the dashes it is shown with.
[[nodiscard]] std::string dashed(std::string_view name);
// The names of values: "NAME VALUE" -> {"NAME", "VALUE"}.
[[nodiscard]] std::vector<std::string> value_names(const Spec& spec);

}  // namespace regroup::cli
