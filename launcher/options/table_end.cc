// When a job ends, what then happens, and what is tried again.
#include <fmt/format.h>

#include "launcher/options/spec.h"
#include "launcher/options/values.h"

namespace regroup::launcher {
namespace {

using core::Status;
using D = OptionsBuilder;
using G = const ParsedArgument;

Status set_signals(OptionsBuilder& builder, const ParsedArgument& argument) {
  return parse_signals(argument.name, argument.value(), builder.out.forward_signals.emplace());
}

Status set_notice_signals(OptionsBuilder& builder, const ParsedArgument& argument) {
  return parse_signals(argument.name, argument.value(), builder.out.notice_signals.emplace());
}

Status set_restarts(OptionsBuilder& builder, const ParsedArgument& argument) {
  return parse_count(argument.name, argument.value(), 0, builder.out.max_restarts.emplace());
}

Status keep_going(OptionsBuilder& builder, const ParsedArgument&) {
  return builder.out.keep_going = true, Status();
}

Status set_fault_tolerance(OptionsBuilder& builder, const ParsedArgument& argument) {
  const std::string word = lower(argument.value());
  if (word != "ulfm" && word != "mpi" && word != "no" && word != "none" && word != "false") {
    return bad_value(argument.name, argument.value(), "ulfm or none is wanted");
  }
  builder.out.ulfm = word == "ulfm" || word == "mpi";
  return {};
}

// Colons part days, hours, minutes and seconds: 1:30 is 90 s.
Status set_timeout(OptionsBuilder& builder, const ParsedArgument& argument) {
  core::Duration total{};
  const std::vector<std::string> parts = split(argument.value(), ":");
  constexpr int kUnits[] = {1, 60, 3600, 86400};
  if (parts.size() > std::size(kUnits))
    return bad_value(argument.name, argument.value(), "a number of seconds is wanted");
  for (std::size_t i = 0; i < parts.size(); ++i) {
    core::Duration part{};
    if (Status status = parse_seconds(argument.name, parts[parts.size() - 1 - i], part); !status.ok())
      return status;
    total += part * kUnits[i];
  }
  builder.out.timeout = total;
  return {};
}

Status set_notice_url(OptionsBuilder& builder, const ParsedArgument& argument) {
  if (!argument.value().starts_with("http://"))
    return bad_value(argument.name, argument.value(), "http://HOST[:PORT][/PATH] is wanted");
  builder.out.notice.address = argument.value();
  return {};
}

Status set_notice_every(OptionsBuilder& builder, const ParsedArgument& argument) {
  REGROUP_RETURN_IF_ERROR(parse_seconds(argument.name, argument.value(), builder.out.notice.every));
  if (builder.out.notice.every >= std::chrono::milliseconds(10)) return {};
  return bad_value(argument.name, argument.value(), "at least 0.01 is wanted");
}

Status set_notice_status(OptionsBuilder& builder, const ParsedArgument& argument) {
  std::uint32_t status = 0;
  REGROUP_RETURN_IF_ERROR(parse_count(argument.name, argument.value(), 0, status));
  if (status > 255) return bad_value(argument.name, argument.value(), "at most 255 is possible");
  builder.out.notice_status = static_cast<int>(status);
  return {};
}

// A list of Open MPI 5: most of it is mpirun's old options under new names.
Status set_runtime(OptionsBuilder& builder, const ParsedArgument& argument) {
  for (const std::string& whole : split(argument.value(), ",")) {
    const std::size_t equals = whole.find('=');
    const std::string key = lower(whole.substr(0, equals));
    const std::string value = equals == std::string::npos ? "1" : lower(whole.substr(equals + 1));
    const bool on = value != "0" && !std::string_view("false").starts_with(value);
    const auto is = [&key](std::string_view name, std::size_t least) {
      return key.size() >= least && name.starts_with(key);
    };
    if (is("donotlaunch", 3)) {
      builder.out.do_not_launch = on;
    } else if (is("recoverable", 3) || is("continuous", 1)) {
      builder.out.keep_going = on;
    } else if (is("max-restarts", 1)) {
      if (Status status = set_restarts(builder, {argument.name, {value}}); !status.ok()) return status;
    } else if (is("timeout", 1)) {
      if (Status status = set_timeout(builder, {argument.name, {value}}); !status.ok()) return status;
    } else {
      builder.ignored.push_back(fmt::format("{} {}", argument.name, whole));
    }
  }
  return {};
}

}  // namespace

std::vector<Spec> end_options() {
  constexpr auto kJob = Scope::kJob;
  constexpr auto kYes = Common::kYes;
  return {
      {{"timeout"},
       "SECONDS",
       "end the job after this time; MPIEXEC_TIMEOUT says the same",
       set_timeout,
       kJob,
       kYes},
      {{"term-grace"},
       "SECONDS",
       "from SIGTERM to SIGKILL when a job is ended (default: 5)",
       [](D& d, G& g) {
         d.out.term_grace_said = true;
         return parse_seconds(g.name, g.value(), d.out.term_grace);
       }},
      {{"notice-file"},
       "PATH",
       "looked at on every host: `shrink|suspend|kill [within=SECONDS] [who=HOST,...]` in it takes hosts "
       "back",
       [](D& d, G& g) { return d.out.notice.file = g.value(), Status(); }},
      {{"notice-command"},
       "COMMAND",
       "run on every host again and again: what it prints is such a notice, or nothing",
       [](D& d, G& g) { return d.out.notice.command = g.value(), Status(); }},
      {{"notice-url"},
       "URL",
       "asked on every host: a cloud's metadata address (EC2, Google, Azure), or one that answers such a "
       "notice",
       set_notice_url},
      {{"notice-every"}, "SECONDS", "how often these are asked (default: 1)", set_notice_every},
      {{"notice-grace"},
       "SECONDS",
       "from a notice to the loss of a host, where the notice does not say (default: the allocator's, else "
       "30)",
       [](D& d, G& g) { return parse_seconds(g.name, g.value(), d.out.notice_grace.emplace()); }},
      {{"notice-signal"},
       "LIST|none",
       "further signals, beside SIGTERM, by which an allocator says that the job is to end (default: USR2 in "
       "a "
       "job of LSF or Grid Engine)",
       set_notice_signals},
      {{"notice-status"},
       "STATUS",
       "exit status of a job that SIGTERM or a notice ended, by which its allocator starts it again, or not",
       set_notice_status},
      {{"forward-signals"},
       "LIST|none",
       "pass on these signals instead of the usual ones: USR1,USR2",
       set_signals},
      {{"max-restarts"},
       "N",
       "of a job of -np MIN:MAX: maximum replacements per member slot without progress, and maximum "
       "relaunches of the job (default: 3)",
       set_restarts,
       kJob,
       kYes},
      {{"with-ft"},
       "ulfm|none",
       "a member's death is told to the others, as ULFM wants it, and does not end the job",
       set_fault_tolerance},
      {{"enable-recovery", "continuous", "disable-auto-cleanup", "dac"},
       "",
       "a lost member does not end the job",
       keep_going},
      {{"disable-recovery", "enable-auto-cleanup"},
       "",
       "a lost member ends the job, which is the default",
       [](D& d, G&) { return d.out.keep_going = false, Status(); }},
      {{"print-all-exitcodes"},
       "",
       "tell every member's exit status at the end",
       [](D& d, G&) { return d.out.print_exit_codes = true, Status(); }},
      {{"report-pid"},
       "-|+|FILE",
       "write our process id to standard output, standard error or a file",
       [](D& d, G& g) { return d.out.report_pid = g.value(), Status(); }},
      {{"runtime-options"},
       "LIST",
       "Open MPI 5's word for some of these: donotlaunch, recoverable, max-restarts=N, timeout=S",
       set_runtime},
  };
}

}  // namespace regroup::launcher
