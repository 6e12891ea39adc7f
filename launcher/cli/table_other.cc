// General options, and those that other launchers have and that change nothing here.
#include <fmt/format.h>

#include "base/values.h"
#include "launcher/cli/spec.h"

namespace regroup::cli {
namespace {

using base::Status;
using D = OptionsBuilder;
using G = const ParsedArgument;

Status nothing(OptionsBuilder&, const ParsedArgument&) { return {}; }

// Said in one line when all is read.
Status ignore(OptionsBuilder& builder, const ParsedArgument& argument) {
  return builder.ignored.push_back(argument.name), Status();
}

Status set_compat(OptionsBuilder& builder, const ParsedArgument& argument) {
  const std::string word = base::lower(argument.value());
  if (word == "mpich" || word == "hydra" || word == "intel") {
    builder.out.compat = spec::Compat::kMpich;
  } else if (word == "openmpi" || word == "ompi") {
    builder.out.compat = spec::Compat::kOpenMpi;
  } else {
    return base::bad_value(argument.name, argument.value(), "expected openmpi or mpich");
  }
  return {};
}

Status help(OptionsBuilder& builder, const ParsedArgument& argument) {
  builder.verb = Verb::kHelp;
  if (!argument.values.empty()) builder.topic = argument.value();
  return {};
}

Status generate(OptionsBuilder& builder, const ParsedArgument& argument) {
  builder.verb = Verb::kGenerate;
  builder.topic = argument.value();
  if (argument.value() == "man" || argument.value() == "bash" || argument.value() == "zsh")
    return {};
  return base::bad_value(argument.name, argument.value(), "expected man, bash or zsh");
}

// Many options that mean nothing here, as rows: {names, values}.
std::vector<Spec> ignored(
    Scope scope, Dialect dialect, const char* help,
    const std::vector<std::pair<std::vector<std::string>, std::string>>& rows) {
  std::vector<Spec> out;
  for (const auto& [names, value] : rows)
    out.push_back({names, value, help, ignore, scope, Common::kNo, dialect});
  return out;
}

void append(std::vector<Spec>& to, std::vector<Spec> more) {
  for (Spec& spec : more) to.push_back(std::move(spec));
}

}  // namespace

std::vector<Spec> general_options() {
  return {
      {{"compat"},
       "openmpi|mpich",
       "launcher whose options, signals and exit statuses are followed (default: openmpi)",
       set_compat},
      {{"quiet", "q"},
       "",
       "print only why a job failed; no notes, warnings or membership changes",
       [](D& d, G&) { return d.out.quiet = true, Status(); }},
      {{"verbose", "v"},
       "",
       "print more on standard error",
       [](D& d, G&) { return d.out.verbose = true, Status(); }},
      {{"allow-run-as-root"}, "", "accepted for mpirun; root may always run jobs", nothing},
      {{"generate"},
       "man|bash|zsh",
       "print the manual page or a shell's completion script",
       generate},
      {{"version", "V"},
       "",
       "print the version",
       [](D& d, G&) { return d.verb = Verb::kVersion, Status(); }},
      {{"help", "h"}, "[TOPIC]", "print help on a topic or an option; all: every option", help},
  };
}

std::vector<Spec> elsewhere_options() {
  constexpr auto kJob = Scope::kJob;
  constexpr auto kAny = Dialect::kAny;
  std::vector<Spec> out = {
      {{"noprefix", "no-app-prefix"}, "", "ignored; no prefix is assumed", nothing},
  };
  append(out, ignored(kJob, kAny, "ignored; for Open MPI's daemons on other hosts",
                      {{{"launch-agent"}, "COMMAND"},
                       {{"dvm"}, "WHERE"},
                       {{"hnp"}, "WHERE"},
                       {{"max-vm-size"}, "N"},
                       {{"novm"}, ""},
                       {{"ompi-server"}, "WHERE"},
                       {{"fwd-mpirun-port"}, ""},
                       {{"use-regexp"}, ""},
                       {{"do-not-resolve"}, ""},
                       {{"enable-instant-on-support"}, ""},
                       {{"no-ready-msg"}, ""},
                       {{"keepalive"}, "PIPE"},
                       {{"set-sid"}, ""},
                       {{"system-server"}, ""},
                       {{"singleton"}, "ID"},
                       {{"tmpdir"}, "DIR"},
                       {{"pmix-prefix"}, "DIR"},
                       {{"app-pmix-prefix"}, "DIR"},
                       {{"hetero-nodes"}, ""}}));
  append(out, ignored(kJob, kAny, "ignored; for copies of files on other hosts",
                      {{{"preload-binary"}, ""},
                       {{"preload-files"}, "FILES"},
                       {{"set-cwd-to-session-dir"}, ""}}));
  append(out, ignored(kJob, Dialect::kOpenMpi, "ignored; for a copy of the program on other hosts",
                      {{{"s"}, ""}}));
  append(out, ignored(kJob, kAny, "ignored; for debugging of Open MPI and its daemons",
                      {{{"debug"}, ""},
                       {{"debugger"}, "COMMAND"},
                       {{"tv"}, ""},
                       {{"debug-devel", "d"}, ""},
                       {{"debug-daemons"}, ""},
                       {{"debug-daemons-file"}, ""},
                       {{"leave-session-attached"}, ""},
                       {{"output-proctable"}, ""},
                       {{"stop-on-exec"}, ""},
                       {{"stop-in-init"}, ""},
                       {{"stop-in-app"}, ""},
                       {{"test-suicide"}, "DELAY"},
                       {{"get-stack-traces"}, ""},
                       {{"report-state-on-timeout"}, ""},
                       {{"report-events"}, "WHERE"},
                       {{"report-uri"}, "WHERE"},
                       {{"show-progress"}, ""},
                       {{"report-child-jobs-separately"}, ""},
                       {{"spawn-timeout"}, "SECONDS"},
                       {{"xterm"}, "RANKS"},
                       {{"xml"}, ""},
                       {{"display-comm"}, ""},
                       {{"display-comm-finalize"}, ""},
                       {{"xml-file"}, "FILE"}}));
  append(out, ignored(kJob, kAny, "ignored; for hints of the MPI standard to mpiexec",
                      {{{"soft"}, "LIST"}, {{"arch"}, "NAME"}, {{"file"}, "FILE"}}));
  append(out, ignored(kJob, kAny, "ignored; for settings of Open MPI's runtime",
                      {{{"cartofile", "cf"}, "FILE"},
                       {{"personality"}, "NAME"},
                       {{"index-argv-by-rank"}, ""},
                       {{"stream-buffering"}, "0|1|2"},
                       {{"gpu-support"}, "BOOL"}}));
  append(out, ignored(kJob, kAny, "ignored; for names of PMIx process sets", {{{"pset"}, "NAME"}}));
  append(out, ignored(kJob, kAny, "ignored; for an allocation that grows",
                      {{{"add-host"}, "HOSTS"}, {{"add-hostfile"}, "FILE"}}));
  append(out, ignored(kJob, kAny, "ignored; for hydra's proxies on other hosts",
                      {{{"iface"}, "NAME"},
                       {{"rmk"}, "NAME"},
                       {{"enable-x"}, ""},
                       {{"disable-x"}, ""},
                       {{"nameserver"}, "WHERE"},
                       {{"disable-hostname-propagation"}, ""},
                       {{"enable-hostname-propagation"}, ""},
                       {{"localhost"}, "NAME"},
                       {{"pmi-port"}, ""},
                       {{"skip-launch-node"}, ""},
                       {{"demux"}, "NAME"},
                       {{"topolib"}, "NAME"},
                       {{"pmi-connect"}, "MODE"},
                       {{"hostlist-file"}, "FILE"},
                       {{"hybrid-hosts"}, ""}}));
  append(out, ignored(kJob, kAny, "ignored; for MPI_UNIVERSE_SIZE", {{{"usize"}, "N"}}));
  append(out, ignored(kJob, kAny, "ignored; for the order of ranks and hosts",
                      {{{"order-nodes"}, "ORDER"}, {{"rankmap"}, "MAP"}}));
  append(out, ignored(kJob, kAny, "ignored; for placement of memory on NUMA nodes",
                      {{{"membind"}, "POLICY"}}));
  append(out, ignored(kJob, kAny, "ignored; for reports of hydra about itself and the ranks",
                      {{{"profile"}, ""}, {{"info"}, ""}, {{"print-rank-map"}, ""}}));
  append(out, ignored(kJob, kAny, "ignored; for the choice of output lines",
                      {{{"output-from"}, "RANKS"}}));
  append(out, ignored(kJob, kAny, "ignored; for GPUs of each rank, see --gpus-per-rank",
                      {{{"gpus-per-proc"}, "N"}, {{"gpu-subdevs-per-proc"}, "N"}}));
  append(out, ignored(kJob, kAny, "ignored; for kinds of memory of MPI 4.1",
                      {{{"memory-alloc-kinds"}, "LIST"}}));
  append(out, ignored(kJob, kAny, "ignored; for tools that wrap ranks", {{{"gtool"}, "COMMAND"}}));
  append(out, ignored(kJob, kAny, "ignored; for torchrun's rendezvous and logs",
                      {{{"standalone"}, ""},
                       {{"rdzv-backend"}, "NAME"},
                       {{"rdzv-endpoint"}, "WHERE"},
                       {{"rdzv-conf"}, "LIST"},
                       {{"node-rank"}, "N"},
                       {{"master-addr"}, "HOST"},
                       {{"master-port"}, "PORT"},
                       {{"local-addr"}, "HOST"},
                       {{"monitor-interval"}, "SECONDS"},
                       {{"start-method"}, "NAME"},
                       {{"duplicate-stdout-filters"}, "LIST"},
                       {{"duplicate-stderr-filters"}, "LIST"},
                       {{"event-log-handler"}, "NAME"},
                       {{"logs-specs"}, "NAME"},
                       {{"signals-to-handle"}, "LIST"}}));
  return out;
}

}  // namespace regroup::cli
