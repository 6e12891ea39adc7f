// General options, and those that other launchers have and that change nothing here.
#include <fmt/format.h>

#include "launcher/options/spec.h"
#include "launcher/options/values.h"

namespace regroup::launcher {
namespace {

using core::Status;
using D = OptionsBuilder;
using G = const ParsedArgument;

Status nothing(OptionsBuilder&, const ParsedArgument&) { return {}; }

// Said in one line when all is read.
Status ignore(OptionsBuilder& builder, const ParsedArgument& argument) {
  return builder.ignored.push_back(argument.name), Status();
}

Status set_compat(OptionsBuilder& builder, const ParsedArgument& argument) {
  const std::string word = lower(argument.value());
  if (word == "mpich" || word == "hydra" || word == "intel") {
    builder.out.compat = Compat::kMpich;
  } else if (word == "openmpi" || word == "ompi") {
    builder.out.compat = Compat::kOpenMpi;
  } else {
    return bad_value(argument.name, argument.value(), "openmpi or mpich is wanted");
  }
  return {};
}

Status help(OptionsBuilder& builder, const ParsedArgument& argument) {
  builder.out.verb = Verb::kHelp;
  if (!argument.values.empty()) builder.out.topic = argument.value();
  return {};
}

Status generate(OptionsBuilder& builder, const ParsedArgument& argument) {
  builder.out.verb = Verb::kGenerate;
  builder.out.topic = argument.value();
  if (argument.value() == "man" || argument.value() == "bash" || argument.value() == "zsh") return {};
  return bad_value(argument.name, argument.value(), "man, bash or zsh is wanted");
}

// Many options that mean nothing here, as rows: {names, values}.
std::vector<Spec> ignored(Scope scope, Dialect dialect, const char* help,
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
  constexpr auto kJob = Scope::kJob;
  constexpr auto kYes = Common::kYes;
  return {
      {{"compat"},
       "openmpi|mpich",
       "whose rules of exit status, signals and options hold (default: openmpi)",
       set_compat,
       kJob,
       kYes},
      {{"quiet", "q"},
       "",
       "say on standard error why a job failed, and nothing else: no notes, warnings or changes",
       [](D& d, G&) { return d.out.quiet = true, Status(); }},
      {{"verbose", "v"},
       "",
       "report more on standard error",
       [](D& d, G&) { return d.out.verbose = true, Status(); },
       kJob,
       kYes},
      {{"allow-run-as-root"}, "", "always so; accepted for mpirun's sake", nothing},
      {{"generate"}, "man|bash|zsh", "print the manual page or a shell's completion", generate},
      {{"version", "V"},
       "",
       "print the version",
       [](D& d, G&) { return d.out.verb = Verb::kVersion, Status(); },
       kJob,
       kYes},
      {{"help", "h"},
       "[NAME]",
       "print the common options, one of them, those of a group, or all of them: --help all",
       help,
       kJob,
       kYes},
  };
}

std::vector<Spec> elsewhere_options() {
  constexpr auto kJob = Scope::kJob;
  constexpr auto kAny = Dialect::kAny;
  std::vector<Spec> out = {
      {{"noprefix", "no-app-prefix"}, "", "no prefix is assumed anyway", nothing},
  };
  append(out, ignored(kJob, kAny, "starts daemons on other hosts",
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
  append(out,
         ignored(kJob, kAny, "copies files to other hosts",
                 {{{"preload-binary"}, ""}, {{"preload-files"}, "FILES"}, {{"set-cwd-to-session-dir"}, ""}}));
  append(out, ignored(kJob, Dialect::kOpenMpi, "copies the program to other hosts", {{{"s"}, ""}}));
  append(out, ignored(kJob, kAny, "for debuggers of Open MPI",
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
                       {{"xml-file"}, "FILE"},
                       {{"cartofile", "cf"}, "FILE"},
                       {{"personality"}, "NAME"},
                       {{"soft"}, "LIST"},
                       {{"arch"}, "NAME"},
                       {{"file"}, "FILE"},
                       {{"index-argv-by-rank"}, ""},
                       {{"stream-buffering"}, "0|1|2"},
                       {{"gpu-support"}, "BOOL"},
                       {{"pset"}, "NAME"}}));
  append(out, ignored(kJob, kAny, "grows an allocation of several hosts",
                      {{{"add-host"}, "HOSTS"}, {{"add-hostfile"}, "FILE"}}));
  append(out, ignored(kJob, kAny, "for hydra's proxies on other hosts",
                      {{{"iface"}, "NAME"},
                       {{"rmk"}, "NAME"},
                       {{"enable-x"}, ""},
                       {{"disable-x"}, ""},
                       {{"nameserver"}, "WHERE"},
                       {{"disable-hostname-propagation"}, ""},
                       {{"enable-hostname-propagation"}, ""},
                       {{"order-nodes"}, "ORDER"},
                       {{"localhost"}, "NAME"},
                       {{"usize"}, "N"},
                       {{"pmi-port"}, ""},
                       {{"skip-launch-node"}, ""},
                       {{"demux"}, "NAME"},
                       {{"topolib"}, "NAME"},
                       {{"membind"}, "POLICY"},
                       {{"rankmap"}, "MAP"},
                       {{"profile"}, ""},
                       {{"info"}, ""},
                       {{"prepend-pattern"}, "PATTERN"},
                       {{"output-from"}, "RANKS"},
                       {{"gpus-per-proc"}, "N"},
                       {{"gpu-subdevs-per-proc"}, "N"},
                       {{"pmi-connect"}, "MODE"},
                       {{"print-rank-map"}, ""},
                       {{"hostlist-file"}, "FILE"},
                       {{"gtool"}, "COMMAND"}}));
  append(out, ignored(kJob, kAny, "torchrun's rendezvous, which one host does not need",
                      {{{"standalone"}, ""},
                       {{"rdzv-backend"}, "NAME"},
                       {{"rdzv-endpoint"}, "WHERE"},
                       {{"rdzv-id"}, "ID"},
                       {{"rdzv-conf"}, "LIST"},
                       {{"node-rank"}, "N"},
                       {{"master-addr"}, "HOST"},
                       {{"master-port"}, "PORT"},
                       {{"local-addr"}, "HOST"},
                       {{"monitor-interval"}, "SECONDS"},
                       {{"start-method"}, "NAME"},
                       {{"no-python"}, ""},
                       {{"log-dir"}, "DIR"},
                       {{"redirects"}, "LIST"},
                       {{"tee"}, "LIST"}}));
  return out;
}

}  // namespace regroup::launcher
