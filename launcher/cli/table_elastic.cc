// What only an elastic job (-np MIN:MAX) has, and roles with the limits of their members.
#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "base/status.h"
#include "base/values.h"
#include "launcher/cli/spec.h"
#include "proto/device_line.h"

namespace regroup::cli {
namespace {

using base::Status;
using D = OptionsBuilder;
using G = const ParsedArgument;

constexpr std::uint32_t kMostLearnerSteps = 64;  // proto::kMaxKeptResults

// ps=MIN:MAX, of Regroup's parameter server.
Status add_server_range(OptionsBuilder& builder, const ParsedArgument& argument,
                        std::string_view range) {
  const std::size_t colon = range.find(':');
  std::uint32_t least = 0;
  if (!base::read_number(range.substr(0, colon), least) ||
      !base::read_number(range.substr(colon + 1), builder.most_servers) || least == 0) {
    return base::bad_value(argument.name, argument.value(),
                           "expected ps=MIN:MAX, two whole numbers >= 1");
  }
  if (least > builder.most_servers)
    return base::bad_value(argument.name, argument.value(), "the range is empty");
  builder.app.roles.push_back(fmt::format("ps={}", least));
  return {};
}

Status add_role(OptionsBuilder& builder, const ParsedArgument& argument) {
  const std::string& text = argument.value();
  const std::size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  std::uint32_t count = 0;
  const std::string_view counts =
      std::string_view(text).substr(std::min(equals, text.size() - 1) + 1);
  if (name == "ps" && counts.find(':') != std::string_view::npos)
    return add_server_range(builder, argument, counts);
  const bool number = equals != std::string::npos && base::read_number(counts, count) && count > 0;
  if (name.empty() || (equals != std::string::npos && !number))
    return base::bad_value(argument.name, text, "expected NAME=N, for example worker=3");
  if (name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") !=
      std::string::npos) {
    return base::bad_value(argument.name, text, "a role name consists of letters, digits, - and _");
  }
  if (number) {
    builder.app.roles.push_back(text);
  } else {
    builder.app.role_name = text;
  }
  return {};
}

Status set_policy(OptionsBuilder& builder, const ParsedArgument& argument) {
  bool restart = false;
  Status status = base::parse_word(argument.name, argument.value(), "restart", "end", restart);
  builder.out.restart_policy = restart ? spec::RestartPolicy::kRestart : spec::RestartPolicy::kEnd;
  return status;
}

// For what the members write: they may have another working directory.
Status set_path(OptionsBuilder& builder, const ParsedArgument& argument, const char* variable,
                const char* expected) {
  if (argument.value().empty()) return base::bad_value(argument.name, argument.value(), expected);
  std::error_code error;
  const auto path = std::filesystem::absolute(argument.value(), error).lexically_normal().string();
  if (error) return base::bad_value(argument.name, argument.value(), error.message());
  builder.changes.push_back({EnvironmentChange::Kind::kSet, variable, path, ""});
  return {};
}

Status set_ledger(OptionsBuilder& builder, const ParsedArgument& argument) {
  return set_path(builder, argument, "REGROUP_LEDGER", "expected a directory");
}

Status set_timeline(OptionsBuilder& builder, const ParsedArgument& argument) {
  return set_path(builder, argument, "REGROUP_TIMELINE", "expected a file");
}

Status set_on_hang(OptionsBuilder& builder, const ParsedArgument& argument) {
  const std::string& text = argument.value();
  proto::OnHang& action = builder.out.hang.action;
  if (text == "report")
    action = proto::OnHang::kReport;
  else if (text == "replace")
    action = proto::OnHang::kReplace;
  else if (text == "drop")
    action = proto::OnHang::kDrop;
  else
    return base::bad_value(argument.name, text, "expected report, replace or drop");
  return {};
}

Status set_plane(OptionsBuilder& builder, const ParsedArgument& argument) {
  builder.out.plane = proto::plane_named(argument.value());
  // Members of other jobs look for no MPI.
  if (builder.out.plane == proto::Plane::kMpi)
    builder.changes.push_back({EnvironmentChange::Kind::kSet, "REGROUP_PLANE", "mpi", ""});
  if (builder.out.plane || argument.value() == "auto") return {};
  return base::bad_value(argument.name, argument.value(),
                         "expected auto, shm, staged, ucx, cuda, nccl or mpi");
}

}  // namespace

// "100" of a World, "60s" of a parameter server: finish_table_checkpoints() knows the job.
Status set_interval(OptionsBuilder& builder, const ParsedArgument& argument) {
  const std::string value = argument.value();
  builder.timed_checkpoints = value.ends_with('s');
  std::uint64_t& every = builder.out.checkpoint.every;
  if (!builder.timed_checkpoints) return base::parse_count(argument.name, value, every);
  if (base::read_number(std::string_view(value).substr(0, value.size() - 1), every) && every > 0)
    return {};
  return base::bad_value(argument.name, value, "expected a number of steps, or of seconds: 60s");
}

std::vector<Spec> elastic_options() {
  constexpr auto kJob = Scope::kJob;
  constexpr auto kYes = Common::kYes;
  return {
      {{"initial-size"},
       "N",
       "number of members at the start; lost ones are replaced up to it (default: min(MAX, slots))",
       [](D& d, G& g) { return base::parse_count(g.name, g.value(), 1, d.out.initial_size); },
       kJob,
       kYes},
      {{"replace"},
       "auto|never",
       "start a new member in place of a lost one (default: auto)",
       [](D& d, G& g) {
         return base::parse_word(g.name, g.value(), "auto", "never", d.out.replace);
       }},
      {{"spares"},
       "K",
       "number of extra members kept ready to take a lost one's place, if slots permit (default: "
       "0)",
       [](D& d, G& g) { return base::parse_count(g.name, g.value(), 0, d.out.spares); }},
      {{"shards"},
       "V",
       "number of logical shards of each batch (default: as in the checkpoint that the job resumes "
       "from, "
       "else the smallest power of two >= MAX)",
       [](D& d, G& g) { return base::parse_count(g.name, g.value(), 1, d.out.shards); }},
      {{"seed"},
       "S",
       "seed of the job's random numbers (default: as in the checkpoint that the job resumes from, "
       "else 0)",
       [](D& d, G& g) { return base::parse_count(g.name, g.value(), d.out.seed); }},
      {{"reproducible"},
       "strict|off",
       "strict: refuse members whose results may differ in the last bits; off: admit them, and do "
       "not "
       "compare states (default: strict)",
       [](D& d, G& g) {
         bool strict = true;
         Status status = base::parse_word(g.name, g.value(), "strict", "off", strict);
         d.out.any_fingerprint = !strict;
         return status;
       }},
      {{"plane"},
       "auto|shm|staged|ucx|cuda|nccl|mpi",
       "data plane by which gradients are summed; auto: the fastest that every member can use, "
       "shown by regroup status (default: auto)",
       set_plane},
      {{"mpi-dir"},
       "DIR",
       "directory where the MPI of --plane mpi is installed, or the file of its library (default: "
       "that of the first mpirun in PATH)",
       [](D& d, G& g) {
         d.changes.push_back({EnvironmentChange::Kind::kSet, "REGROUP_MPI_DIR", g.value(), ""});
         return Status();
       }},
      {{"reduce"},
       "canonical|fast",
       "canonical: sums do not depend on the number of members; fast: not in this version "
       "(default: canonical)",
       [](D& d, G& g) {
         return base::parse_word(g.name, g.value(), "fast", "canonical", d.fast_reduce);
       }},
      {{"learner-steps"},
       "N",
       "number of step results each host retains so that a joining member can catch up without "
       "pausing "
       "training; 0: pause training while state is copied (default: 8)",
       [](D& d, G& g) {
         const std::string value = g.value();
         REGROUP_RETURN_IF_ERROR(base::parse_count(g.name, value, 0, d.out.learner_steps));
         if (d.out.learner_steps <= kMostLearnerSteps) return Status();
         return base::bad_value(g.name, value,
                                fmt::format("expected at most {}", kMostLearnerSteps));
       }},
      {{"learner-state"},
       "BYTES",
       "state size below which training pauses while state is copied (default: 64M)",
       [](D& d, G& g) { return base::parse_bytes(g.name, g.value(), d.out.learner_state); }},
      {{"device-memory"},
       "N",
       "number of leaf buffers of each member in memory of its GPU that outlives the member, for "
       "plane cuda; 0: gradients go through the host's memory (default: 0; with --plane cuda the "
       "number that the shards need)",
       [](D& d, G& g) {
         const std::string value = g.value();
         REGROUP_RETURN_IF_ERROR(base::parse_count(g.name, value, 0, d.out.leaf_buffers.emplace()));
         if (*d.out.leaf_buffers <= proto::kMaxLeafBuffers) return Status();
         return base::bad_value(g.name, value,
                                fmt::format("expected at most {}", proto::kMaxLeafBuffers));
       }},
      {{"checkpoint"},
       "DIR",
       "write checkpoints to DIR; resume from the newest one there. With --ps-memory: of its "
       "tables",
       [](D& d, G& g) { return d.out.checkpoint.directory = g.value(), Status(); },
       kJob,
       kYes},
      {{"checkpoint-shared"},
       "DIR",
       "copy each checkpoint to DIR in the background; resume from the newest of both directories",
       [](D& d, G& g) { return d.out.checkpoint.shared = g.value(), Status(); }},
      {{"checkpoint-interval"},
       "N",
       "number of steps between checkpoints, of which the last step always gets one; 0: write none "
       "(default: 100). With --ps-memory seconds, for example 60s (default: 600s)",
       set_interval},
      {{"checkpoint-memory"},
       "BYTES",
       "maximum memory of the save area on a host (default: the size of the state)",
       [](D& d, G& g) { return base::parse_bytes(g.name, g.value(), d.out.checkpoint.memory); }},
      {{"checkpoint-keep"},
       "K",
       "number of newest checkpoints to keep, so that one damaged file does not lose all: 1 keeps "
       "2 (default: 3)",
       [](D& d, G& g) { return base::parse_count(g.name, g.value(), 1, d.out.checkpoint.keep); }},
      {{"checkpoint-keep-every"},
       "N",
       "also keep checkpoints whose step is a multiple of N (default: none)",
       [](D& d, G& g) {
         return base::parse_count(g.name, g.value(), d.out.checkpoint.keep_every);
       }},
      {{"audit"},
       "N",
       "number of steps from one audit to the next, in which two members compute the same shard; "
       "one whose bits a third does not have is replaced (default: 0, none)",
       [](D& d, G& g) { return base::parse_count(g.name, g.value(), 0, d.audit); }},
      {{"health"},
       "",
       "check the GPU of each member before it is admitted; one that computes wrong bits, does not "
       "answer or needs a reset is not used. Off by default: not tried on a real GPU yet",
       [](D& d, G&) {
         d.health = true;
         return Status();
       }},
      {{"ledger"},
       "DIR",
       "write to DIR/ledger.jsonl which samples each step used; regroup ledger verify DIR checks "
       "it",
       set_ledger},
      {{"timeline"},
       "FILE",
       "write what each member does, and when, in the Chrome trace format, which ui.perfetto.dev "
       "shows",
       set_timeline},
      {{"min-members-timeout"},
       "SECONDS",
       "end the job after this time with fewer than MIN members (default: 60)",
       [](D& d, G& g) {
         return base::parse_seconds(g.name, g.value(), d.out.min_members_timeout);
       }},
      {{"ready-timeout"},
       "SECONDS",
       "time for a new member to become ready, before it is given up (default: 300)",
       [](D& d, G& g) { return base::parse_seconds(g.name, g.value(), d.out.ready_timeout); }},
      {{"on-hang"},
       "report|replace|drop",
       "action on a member that hangs while others wait for it; report it, kill and replace it, or "
       "continue "
       "without it (default: report)",
       set_on_hang},
      {{"hang-timeout"},
       "SECONDS",
       "time without progress, and at least ten median steps, after which a member counts as hung; "
       "without which a parameter server is replaced; 0: never (default: 60)",
       [](D& d, G& g) { return base::parse_seconds(g.name, g.value(), d.out.hang.timeout); }},
      {{"progress"},
       "",
       "show epoch, loss, speed and remaining time; on standard error, in one line that is redrawn "
       "on a terminal, else in a line every 10 s (`regroup top`: of a running job)",
       [](D& d, G&) { return d.out.progress = true, Status(); },
       kJob,
       kYes},
      {{"orphan-timeout"},
       "SECONDS",
       "time for which the job continues without its launcher (default: 10)",
       [](D& d, G& g) { return base::parse_seconds(g.name, g.value(), d.out.orphan_timeout); }},
  };
}

std::vector<Spec> role_options() {
  constexpr auto kApp = Scope::kApp;
  constexpr auto kYes = Common::kYes;
  return {
      {{"role"},
       "NAME=N",
       "start N members of a role, each with TF_CONFIG; for example --role chief=1 --role "
       "worker=3; ps=MIN:MAX with --ps-memory; NAME "
       "alone is torchrun's: lines of --tee begin with it",
       add_role,
       kApp,
       kYes},
      {{"job"},
       "FILE",
       "read roles, programs and limits from a YAML file",
       [](D& d, G& g) { return d.out.job_file = g.value(), Status(); }},
      {{"ps-memory"},
       "BYTES",
       "make the role ps Regroup's parameter server, with BYTES of memory for its tables, for "
       "example 1G; N of --role ps=N, or from MIN to MAX of ps=MIN:MAX, is its number of servers",
       [](D& d, G& g) { return base::parse_bytes(g.name, g.value(), d.out.ps_memory); }},
      {{"ps-hosts"},
       "N",
       "put the servers and tables of --ps-memory on the first N hosts of the job, BYTES on each "
       "(default: 1)",
       [](D& d, G& g) { return base::parse_count(g.name, g.value(), 1, d.out.ps_hosts); }},
      {{"ps-replicas"},
       "R",
       "keep R copies of each part of the tables, on R of the hosts of --ps-hosts, so that the job "
       "survives the loss of R - 1 of them (default: 1)",
       [](D& d, G& g) { return base::parse_count(g.name, g.value(), 1, d.out.ps_replicas); }},
      {{"restart-policy"},
       "end|restart",
       "action on the job when a chief or ps dies (default: end)",
       set_policy},
      {{"cpus"},
       "N",
       "processor time of each member, in processors, for example 0.5",
       [](D& d, G& g) { return base::parse_cpus(g.name, g.value(), d.app.app.limits.cpus); },
       kApp},
      {{"memory"},
       "SIZE",
       "memory limit of each member, for example 512M or 2G",
       [](D& d, G& g) {
         return base::parse_bytes(g.name, g.value(), d.app.app.limits.memory_bytes);
       },
       kApp},
  };
}

}  // namespace regroup::cli
