// When a job ends, what then happens, and what is tried again.
#include <fmt/format.h>

#include "base/status.h"
#include "base/values.h"
#include "launcher/cli/spec.h"

namespace regroup::cli {
namespace {

using base::Status;
using D = OptionsBuilder;
using G = const ParsedArgument;

Status set_signals(OptionsBuilder& builder, const ParsedArgument& argument) {
  return base::parse_signals(argument.name, argument.value(),
                             builder.out.forward_signals.emplace());
}

Status set_notice_signals(OptionsBuilder& builder, const ParsedArgument& argument) {
  return base::parse_signals(argument.name, argument.value(), builder.out.notice_signals.emplace());
}

Status set_restarts(OptionsBuilder& builder, const ParsedArgument& argument) {
  return base::parse_count(argument.name, argument.value(), 0, builder.out.max_restarts.emplace());
}

Status keep_going(OptionsBuilder& builder, const ParsedArgument&) {
  return builder.out.keep_going = true, Status();
}

constexpr int kRefusesTolerance = 213;  // Open MPI 5, for none, too

Status set_fault_tolerance(OptionsBuilder& builder, const ParsedArgument& argument) {
  const std::string word = base::lower(argument.value());
  if (word != "ulfm" && word != "mpi") {
    return builder.refuse(
        kRefusesTolerance,
        base::bad_value(argument.name, argument.value(),
                        "expected ulfm; without the option a death ends the job"));
  }
  builder.out.ulfm = true;
  return {};
}

// Colons part days, hours, minutes and seconds: 1:30 is 90 s.
Status set_timeout(OptionsBuilder& builder, const ParsedArgument& argument) {
  base::Duration total{};
  const std::vector<std::string> parts = base::split(argument.value(), ":");
  constexpr int kUnits[] = {1, 60, 3600, 86400};
  if (parts.size() > std::size(kUnits))
    return base::bad_value(argument.name, argument.value(), "expected a number of seconds");
  for (std::size_t i = 0; i < parts.size(); ++i) {
    base::Duration part{};
    if (Status status = base::parse_seconds(argument.name, parts[parts.size() - 1 - i], part);
        !status.ok())
      return status;
    total += part * kUnits[i];
  }
  builder.out.timeout = total;
  return {};
}

Status set_notice_url(OptionsBuilder& builder, const ParsedArgument& argument) {
  if (!argument.value().starts_with("http://"))
    return base::bad_value(argument.name, argument.value(), "expected http://HOST[:PORT][/PATH]");
  builder.out.notice.address = argument.value();
  return {};
}

Status set_notice_every(OptionsBuilder& builder, const ParsedArgument& argument) {
  REGROUP_RETURN_IF_ERROR(
      base::parse_seconds(argument.name, argument.value(), builder.out.notice.every));
  if (builder.out.notice.every >= std::chrono::milliseconds(10)) return {};
  return base::bad_value(argument.name, argument.value(), "expected at least 0.01");
}

Status set_notice_status(OptionsBuilder& builder, const ParsedArgument& argument) {
  std::uint32_t status = 0;
  REGROUP_RETURN_IF_ERROR(base::parse_count(argument.name, argument.value(), 0, status));
  if (status > 255) return base::bad_value(argument.name, argument.value(), "expected at most 255");
  builder.out.notice_status = static_cast<int>(status);
  return {};
}

// A list of Open MPI 5: most of it is mpirun's old options under new names.
Status set_runtime(OptionsBuilder& builder, const ParsedArgument& argument) {
  for (const std::string& whole : base::split(argument.value(), ",")) {
    const std::size_t equals = whole.find('=');
    const std::string key = base::lower(whole.substr(0, equals));
    const std::string value =
        equals == std::string::npos ? "1" : base::lower(whole.substr(equals + 1));
    const bool on = value != "0" && !std::string_view("false").starts_with(value);
    const auto is = [&key](std::string_view name, std::size_t least) {
      return key.size() >= least && name.starts_with(key);
    };
    if (is("donotlaunch", 3)) {
      builder.out.do_not_launch = on;
    } else if (is("recoverable", 3) || is("continuous", 1)) {
      builder.out.keep_going = on;
    } else if (is("max-restarts", 1)) {
      if (Status status = set_restarts(builder, {argument.name, {value}}); !status.ok())
        return status;
    } else if (is("timeout", 1)) {
      if (Status status = set_timeout(builder, {argument.name, {value}}); !status.ok())
        return status;
    } else {
      builder.ignored.push_back(fmt::format("{} {}", argument.name, whole));
    }
  }
  return {};
}

}  // namespace

std::vector<Spec> end_options() {
  return {
      {{"timeout"},
       "SECONDS",
       "end the job after this time; also M:S, H:M:S or D:H:M:S (default: MPIEXEC_TIMEOUT, else no "
       "limit)",
       set_timeout},
      {{"term-grace", "shutdown-timeout"},
       "SECONDS",
       "time from SIGTERM to SIGKILL when a job ends (default: 5)",
       [](D& d, G& g) {
         d.out.term_grace_given = true;
         return base::parse_seconds(g.name, g.value(), d.out.term_grace);
       }},
      {{"notice-file"},
       "PATH",
       "file with a preemption notice, polled on every host; it contains `shrink|suspend|kill "
       "[within=SECONDS] [hosts=HOST,...]`",
       [](D& d, G& g) { return d.out.notice.file = g.value(), Status(); }},
      {{"notice-command"},
       "COMMAND",
       "command that prints a preemption notice, as in --notice-file, or nothing; run at each poll "
       "on every "
       "host",
       [](D& d, G& g) { return d.out.notice.command = g.value(), Status(); }},
      {{"notice-url"},
       "URL",
       "URL of a preemption notice, polled on every host; a cloud's metadata address (EC2, Google, "
       "Azure), "
       "or one that answers as in --notice-file",
       set_notice_url},
      {{"notice-every"},
       "SECONDS",
       "interval between polls for a preemption notice (default: 1)",
       set_notice_every},
      {{"notice-grace"},
       "SECONDS",
       "time from a preemption notice to the loss of the host, if the notice gives none (default: "
       "the "
       "allocator's, else 30)",
       [](D& d, G& g) {
         return base::parse_seconds(g.name, g.value(), d.out.notice_grace.emplace());
       }},
      {{"notice-signal"},
       "LIST|none",
       "signals, in addition to SIGTERM, by which an allocator announces the end of the job "
       "(default: USR2 "
       "under LSF and Grid Engine)",
       set_notice_signals},
      {{"notice-status"},
       "STATUS",
       "exit status after SIGTERM or a preemption notice; choose the one that your scheduler "
       "requeues on",
       set_notice_status},
      {{"forward-signals"},
       "LIST|none",
       "signals to forward to the members (default: USR1,USR2)",
       set_signals},
      {{"max-restarts"},
       "N",
       "maximum restarts; replacements per member slot without progress, and relaunches of the "
       "job, with -np "
       "MIN:MAX or --role (default: 3)",
       set_restarts},
      {{"with-ft"},
       "ulfm",
       "report a member's death to the other ranks and continue the job (default: end it)",
       set_fault_tolerance},
      {{"enable-recovery", "continuous", "disable-auto-cleanup", "dac"},
       "",
       "continue the job when a member is lost",
       keep_going},
      {{"disable-recovery", "enable-auto-cleanup"},
       "",
       "end the job when a member is lost (default)",
       [](D& d, G&) { return d.out.keep_going = false, Status(); }},
      {{"print-all-exitcodes"},
       "",
       "print every member's exit status at the end",
       [](D& d, G&) { return d.out.print_exit_codes = true, Status(); }},
      {{"report-pid"},
       "-|+|FILE",
       "write the launcher's process ID to standard output (-), standard error (+) or FILE",
       [](D& d, G& g) { return d.out.report_pid = g.value(), Status(); }},
      {{"runtime-options"},
       "LIST",
       "set several options (Open MPI 5): donotlaunch, recoverable, max-restarts=N, timeout=S",
       set_runtime},
  };
}

}  // namespace regroup::cli
