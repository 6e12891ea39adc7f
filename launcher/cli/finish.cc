// Counts, roles and programs, once the whole command line is read.
#include "launcher/cli/finish.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/printable.h"
#include "base/values.h"
#include "launcher/job/cluster_spec.h"

namespace regroup::cli {
namespace {

using base::invalid_argument;
using base::Status;

// A script that cannot run by itself, or a module, is run by python3; under torchrun's options
// every script is.
void run_by_python(const OptionsBuilder& builder, const AppBuilder& from, spec::AppRequest& app) {
  if (app.command.empty() || from.interpreter == Interpreter::kNone) return;
  std::string& program = app.command[0];
  if (from.interpreter == Interpreter::kModule) {
    app.command.insert(app.command.begin(), {"python3", "-m"});
    return;
  }
  const bool always = from.interpreter == Interpreter::kPython;
  if (!always && !program.ends_with(".py")) return;
  const std::string path =
      app.wdir.empty() || program.starts_with('/') ? program : app.wdir + "/" + program;
  if (always || builder.torchrun || !builder.context.is_executable ||
      !builder.context.is_executable(path)) {
    app.command.insert(app.command.begin(), "python3");
  } else if (program.find('/') == std::string::npos) {
    program.insert(0, "./");
  }
}

// Beside a job file there are no programs, but options of hosts and environment, which count for
// its own.
Status check_job_file(OptionsBuilder& builder) {
  const std::string& file = builder.out.job_file;
  if (file.empty()) return {};
  if (!builder.done.empty()) {
    return invalid_argument(
        fmt::format("--job {}: the job file names the programs; remove {} from the command line",
                    file, builder.done[0].app.command[0]));
  }
  if (!builder.app.options.empty()) {
    return invalid_argument(fmt::format("--job {}: the job file replaces {}; remove the option",
                                        file, builder.app.options[0]));
  }
  builder.done.push_back(std::move(builder.app));
  return {};
}

// One app, or one for each of its roles.
Status add_apps(OptionsBuilder& builder, AppBuilder& from) {
  spec::AppRequest app = std::move(from.app);
  app.environment = app_environment(builder, from);
  if (!builder.out.job_file.empty())
    return builder.job_environment = std::move(app.environment), Status();
  const auto path = builder.context.environment.find("PATH");
  // -envnone hides PATH from the members, not from us.
  const auto own = app.environment.find("PATH");
  const std::string searched = own != app.environment.end()                ? own->second
                               : path != builder.context.environment.end() ? path->second
                                                                           : "";
  if (!app.search_path.empty() && !searched.empty()) {
    app.search_path += ":" + searched;
  } else if (app.search_path.empty() && own == app.environment.end()) {
    app.search_path = searched;
  }
  run_by_python(builder, from, app);
  if (!from.role_name.empty()) {
    if (!builder.torchrun) {
      return invalid_argument(
          fmt::format("option --role {}: expected NAME=N, for example worker=3", from.role_name));
    }
    builder.log_role = from.role_name;
  }
  if (from.roles.empty()) return builder.out.apps.push_back(std::move(app)), Status();
  if (!from.count_given.empty() || app.per_node) {
    return invalid_argument(fmt::format(
        "{} with --role: the role already sets the number of members; expected one of them",
        from.count_given.empty() ? "-N" : from.count_given));
  }
  for (const std::string& role : from.roles) {
    const std::size_t equals = role.find('=');
    app.role = role.substr(0, equals);
    std::uint32_t count = 0;
    if (!base::read_number(std::string_view(role).substr(equals + 1), count))
      continue;  // checked when it was read
    app.count = count;
    for (const spec::AppRequest& other : builder.out.apps) {
      if (other.role == app.role)
        return invalid_argument(
            fmt::format("--role {}: given twice; expected each role once", app.role));
    }
    builder.out.apps.push_back(app);
  }
  return {};
}

// -N: so many on each host.
Status apply_per_node(OptionsBuilder& builder, spec::AppRequest& app) {
  const spec::MapBy& map = builder.out.mapping.map;
  if (!app.per_node && map.kind == spec::MapBy::Kind::kPerUnit && map.unit == spec::Unit::kNode)
    app.per_node = map.per_unit;
  if (!app.per_node || builder.out.elastic) return {};
  const std::size_t hosts = std::max<std::size_t>(1, builder.out.hosts.size());
  const std::uint64_t most = *app.per_node * std::uint64_t{hosts};
  if (!app.count) {
    app.count = static_cast<std::uint32_t>(std::min<std::uint64_t>(most, ~std::uint32_t{0}));
  } else if (*app.count > most && !builder.mpich()) {
    return builder.refuse(
        kContradicts,
        invalid_argument(fmt::format(
            "{} with {} on each host need {}, got {}", base::counted(*app.count, "member"),
            *app.per_node, base::counted((*app.count - 1) / *app.per_node + 1, "host"), hosts)));
  }
  return {};
}

std::string what(const spec::AppRequest& app) {
  return app.role.empty() ? fmt::format("program {}", app.command[0])
                          : fmt::format("role {}", app.role);
}

Status count_members(OptionsBuilder& builder) {
  spec::JobSpec& out = builder.out;
  if (out.elastic && out.apps.size() > 1) {
    return invalid_argument(
        fmt::format("-np {}:{}: an elastic job runs exactly one program", out.min, out.max));
  }
  std::uint64_t total = 0;
  for (spec::AppRequest& app : out.apps) {
    if (Status status = apply_per_node(builder, app); !status.ok()) return status;
    if (!app.count && out.apps.size() > 1) {
      if (!builder.mpich()) {
        return builder.refuse(
            kBadParameter,
            invalid_argument(
                fmt::format("{}: -np is missing or 0; expected -np N for each of several programs",
                            what(app))));
      }
      app.count = 1;
    }
    total += app.count.value_or(0);
  }
  if (total > ~std::uint32_t{0})
    return invalid_argument(fmt::format("{} members: expected at most 4294967295", total));
  if (!out.elastic) out.min = out.max = static_cast<std::uint32_t>(total);
  return {};
}

// What -x and its like have changed counts more than the file's jobEnvs; -envnone hides PATH from
// the members, not from us.
void prefer_command_line(const OptionsBuilder& builder, spec::AppRequest& app) {
  const spec::Environment& own = builder.context.environment;
  for (const auto& [name, value] : builder.job_environment) {
    const auto ours = own.find(name);
    if (ours == own.end() || ours->second != value) app.environment[name] = value;
  }
  const auto path = own.find("PATH");
  if (!app.environment.contains("PATH") && path != own.end()) app.search_path = path->second;
}

// The programs and roles of --job.
Status read_job_file(OptionsBuilder& builder) {
  spec::JobSpec& out = builder.out;
  if (!builder.context.read_job) return {};
  REGROUP_ASSIGN_OR_RETURN(
      auto file,
      builder.context.read_job(out.job_file, builder.job_environment, out.several_hosts()));
  for (spec::AppRequest& app : file.apps) prefer_command_line(builder, app);
  out.apps = std::move(file.apps);
  out.roles = std::move(file.roles);
  out.job_name = std::move(file.name);
  out.notes.insert(out.notes.end(), file.notes.begin(), file.notes.end());
  if (!out.max_restarts) out.max_restarts = file.retry_count;
  return {};
}

// The roles of --role.
Status take_roles(OptionsBuilder& builder) {
  spec::JobSpec& out = builder.out;
  for (const spec::AppRequest& app : out.apps) {
    if (app.role.empty()) continue;
    spec::Role& role = out.roles.emplace_back();
    role.name = app.role;
    role.count = app.count.value_or(1);
  }
  if (out.roles.empty()) return {};
  if (out.roles.size() != out.apps.size())
    return invalid_argument("--role: expected one for every program of the job");
  if (out.elastic)
    return invalid_argument(
        "--role and -np MIN:MAX cannot be combined: --role NAME=N sets the number of members");
  return job::check_roles(out.roles);
}

// Whether an option of all Worlds was given.
bool is_given(const spec::JobSpec& spec, std::string_view name) {
  return std::ranges::any_of(spec.world_options, [&](const std::string& option) {
    return std::string_view(option).substr(option.find_first_not_of('-')) == name;
  });
}

constexpr std::uint64_t kTablesEvery = 600;  // seconds

// A parameter server has no steps: what its checkpoints have in steps otherwise is in seconds.
Status finish_table_checkpoints(OptionsBuilder& builder) {
  spec::JobSpec& out = builder.out;
  std::uint64_t& every = out.checkpoint.every;
  if (out.ps_memory == 0) {
    if (!builder.timed_checkpoints) return {};
    return invalid_argument(fmt::format(
        "--checkpoint-interval {}s: expected a number of steps; seconds are for --ps-memory",
        every));
  }
  if (!is_given(out, "checkpoint-interval")) {
    every = kTablesEvery;
  } else if (!builder.timed_checkpoints && every != 0) {
    return invalid_argument(fmt::format(
        "--checkpoint-interval {0}: a parameter server has no steps: expected seconds, {0}s, or 0",
        every));
  }
  if (out.ps_replicas > 1 && !out.checkpoint.directory.empty())
    return invalid_argument(fmt::format(
        "--ps-replicas {}: not with --checkpoint: checkpoints have no tables with several copies",
        out.ps_replicas));
  for (const char* const name : {"checkpoint-shared", "checkpoint-memory"}) {
    if (is_given(out, name))
      return invalid_argument(fmt::format("--{}: not with --ps-memory", name));
  }
  return {};
}

constexpr std::uint32_t kMostReplicated = 64;  // hosts with tables: clients have a bit for each

// With --ps-memory the role ps is Regroup's parameter server: it has no program and no members.
Status take_parameter_server(OptionsBuilder& builder) {
  spec::JobSpec& out = builder.out;
  if (out.ps_memory == 0 && builder.most_servers != 0)
    return invalid_argument(
        "--role ps=MIN:MAX: expected --ps-memory BYTES, since only Regroup's parameter server "
        "changes its number of servers");
  if (out.ps_memory == 0 && out.ps_hosts > 1)
    return invalid_argument("--ps-hosts: expected --ps-memory BYTES and a role ps");
  if (out.ps_memory == 0 && out.ps_replicas > 1)
    return invalid_argument("--ps-replicas: expected --ps-memory BYTES and a role ps");
  if (out.ps_memory == 0) return {};
  const auto server = std::ranges::find(out.roles, "ps", &spec::Role::name);
  if (server == out.roles.end())
    return invalid_argument("--ps-memory: expected a role ps, for example --role ps=1");
  if (out.roles.size() == 1)
    return invalid_argument("--ps-memory: expected a role besides ps, for example --role worker=4");
  out.ps_servers = server->count;
  out.ps_most_servers = builder.most_servers != 0 ? builder.most_servers : server->count;
  if (out.ps_servers < out.ps_hosts) {
    return invalid_argument(
        fmt::format("--ps-hosts {}: expected a server for each host, --role ps={} or more, got {}",
                    out.ps_hosts, out.ps_hosts, out.ps_servers));
  }
  if (out.ps_hosts < out.ps_replicas) {
    return invalid_argument(fmt::format(
        "--ps-replicas {}: expected a host for each copy, --ps-hosts {} or more, got {}",
        out.ps_replicas, out.ps_replicas, out.ps_hosts));
  }
  if (out.ps_replicas > 1 && out.ps_hosts > kMostReplicated) {
    return invalid_argument(fmt::format("--ps-replicas {}: expected --ps-hosts {} or less, got {}",
                                        out.ps_replicas, kMostReplicated, out.ps_hosts));
  }
  out.apps.erase(out.apps.begin() + (server - out.roles.begin()));
  out.roles.erase(server);
  return {};
}

// A cluster's members outnumber the cores as a rule: its servers mostly wait.
Status finish_roles(OptionsBuilder& builder) {
  spec::JobSpec& out = builder.out;
  Status status = out.job_file.empty() ? take_roles(builder) : read_job_file(builder);
  if (status.ok()) status = take_parameter_server(builder);
  if (status.ok()) status = finish_table_checkpoints(builder);
  if (!status.ok() || out.roles.empty()) return status;
  out.max = 0;
  for (const spec::AppRequest& app : out.apps) out.max += app.count.value_or(1);
  out.min = out.max;
  out.oversubscribe = true;
  return {};
}

// MPIEXEC_TIMEOUT, where --timeout was not given.
Status read_timeout(OptionsBuilder& builder) {
  const auto set = builder.context.environment.find("MPIEXEC_TIMEOUT");
  if (builder.out.timeout != base::Duration{} || set == builder.context.environment.end() ||
      set->second.empty())
    return {};
  return base::parse_seconds("MPIEXEC_TIMEOUT", set->second, builder.out.timeout);
}

std::string variable(const OptionsBuilder& builder, const std::string& name,
                     const std::string& otherwise) {
  const auto found = builder.context.environment.find(name);
  return found == builder.context.environment.end() || found->second.empty() ? otherwise
                                                                             : found->second;
}

// The files of torchrun's --redirects and --tee. Without a folder torchrun puts them where nobody
// looks: a new folder in /tmp; here the output is then shown. As there, /dev/null is no folder.
Status finish_log(OptionsBuilder& builder) {
  spec::LogRequest& log = builder.out.output.log;
  const std::string role = builder.log_role.empty() ? "default" : builder.log_role;
  if (!builder.log_folder) {
    if (log.redirect.any()) builder.ignored.emplace_back("--redirects without --log-dir");
    if (log.tee.any()) builder.ignored.emplace_back("--tee without --log-dir");
  }
  if (!builder.log_folder || builder.log_folder == "/dev/null") log.redirect = log.tee = {};
  if (!log.any()) {
    if (builder.log_folder) builder.ignored.emplace_back("--log-dir");
    if (!builder.log_role.empty()) builder.ignored.push_back("--role " + role);
    return {};
  }
  if (builder.run_id.find('/') != std::string::npos)
    return base::bad_value("--rdzv-id", builder.run_id, "expected no '/'");
  log.folder = fmt::format("{}/{}", *builder.log_folder, builder.run_id);
  log.prefix =
      variable(builder, "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "[${role_name}${local_rank}]:");
  for (const char* name : {"${role_name}", "$role_name"}) {
    for (std::size_t at = 0; (at = log.prefix.find(name, at)) != std::string::npos;
         at += role.size())
      log.prefix.replace(at, std::string_view(name).size(), role);
  }
  return {};
}

Status check_mpi_dir(const OptionsBuilder& builder) {
  const bool given = std::ranges::any_of(builder.changes, [](const EnvironmentChange& change) {
    return change.name == "REGROUP_MPI_DIR";
  });
  if (!given || builder.out.plane == proto::Plane::kMpi) return {};
  return invalid_argument("--mpi-dir: only --plane mpi uses an MPI; add --plane mpi");
}

// What --reproducible strict demands and what --reduce fast gives up are the same bits.
Status check_reduce(const OptionsBuilder& builder) {
  if (!builder.fast_reduce) return {};
  const bool strict = !builder.out.any_fingerprint &&
                      std::ranges::any_of(builder.out.world_options, [](const std::string& name) {
                        return name.ends_with("reproducible");
                      });
  if (strict)
    return invalid_argument(
        "--reduce fast and --reproducible strict cannot be combined: fast sums depend on the "
        "number "
        "of members in the last bits; --reduce canonical fits");
  return invalid_argument(
      "--reduce fast: this version has no fast reduction; --reduce canonical, the default, fits "
      "every plane");
}

// Members that may compute other bits are no sign of a fault.
Status apply_audit(OptionsBuilder& builder) {
  if (builder.audit == 0) return {};
  if (builder.out.any_fingerprint)
    return invalid_argument(
        "--audit and --reproducible off cannot be combined: an audit compares bits; --reproducible "
        "strict, the default, fits");
  builder.changes.push_back(
      {EnvironmentChange::Kind::kSet, "REGROUP_AUDIT", std::to_string(builder.audit), ""});
  return {};
}

}  // namespace

Status finish(OptionsBuilder& builder) {
  spec::JobSpec& out = builder.out;
  if (Status status = check_reduce(builder); !status.ok()) return status;
  if (Status status = apply_audit(builder); !status.ok()) return status;
  if (builder.health)
    builder.changes.push_back({EnvironmentChange::Kind::kSet, "REGROUP_HEALTH", "1", ""});
  if (Status status = check_mpi_dir(builder); !status.ok()) return status;
  if (Status status = check_job_file(builder); !status.ok()) return status;
  if (Status status = apply_parameters(builder); !status.ok()) return status;
  std::string& prefix = out.output.log.prefix;
  const bool tagged = out.output.tag != spec::OutputRequest::Tag::kNone || !prefix.empty();
  if (builder.name_stream && (!tagged || prefix == kDetailedPrefix))
    prefix.insert(0, kStreamPrefix);
  for (AppBuilder& app : builder.done) {
    if (Status status = add_apps(builder, app); !status.ok()) return status;
  }
  out.oversubscribe = out.mapping.map.oversubscribe.value_or(builder.mpich());
  out.output.terminals = !builder.mpich();  // hydra gives pipes
  out.no_oversubscribe = !out.mapping.map.oversubscribe.value_or(true);
  if (Status status = resolve_hosts(builder); !status.ok()) return status;
  if (Status status = count_members(builder); !status.ok()) return status;
  if (Status status = count_by_lists(builder); !status.ok()) return status;
  if (Status status = choose_hosts(builder); !status.ok()) return status;
  if (Status status = read_timeout(builder); !status.ok()) return status;
  if (Status status = finish_log(builder); !status.ok()) return status;
  const spec::Display& shown = out.display;
  if (out.do_not_launch && !shown.map && !shown.allocation && !shown.topology && !shown.bindings)
    out.display.map = true;
  if (!builder.ignored.empty()) {
    out.notes.push_back(
        fmt::format("ignored, without effect in regroup: {}", fmt::join(builder.ignored, ", ")));
  }
  return finish_roles(builder);
}

}  // namespace regroup::cli
