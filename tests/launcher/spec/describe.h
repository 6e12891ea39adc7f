// Formats a parsed command line as text, for tests: only values that differ from the defaults.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <string>

#include "launcher/cli/parse.h"

namespace regroup::spec {

inline std::string describe(const MapBy& map) {
  using Kind = MapBy::Kind;
  std::string out;
  if (map.kind == Kind::kSlot) out += " slot";
  if (map.kind == Kind::kUnit) out += fmt::format(" {}", unit_name(map.unit));
  if (map.kind == Kind::kPerUnit)
    out += fmt::format(" {} per {}", map.per_unit, unit_name(map.unit));
  if (map.kind == Kind::kSequence) out += " seq";
  if (map.kind == Kind::kRankFile) out += " rankfile";
  if (map.kind == Kind::kCpuList) out += fmt::format(" cpus {}", fmt::join(map.cpu_list, ","));
  if (map.kind == Kind::kDistance) out += " near " + map.device;
  if (map.cpus != 0) out += fmt::format(" {} cpus each", map.cpus);
  if (map.span) out += " span";
  if (map.oversubscribe) out += *map.oversubscribe ? " oversubscribe" : " nooversubscribe";
  if (map.no_local) out += " nolocal";
  if (map.hwthread_cpus) out += *map.hwthread_cpus ? " hwthreads" : " cores";
  if (!map.file.empty()) out += " file " + map.file;
  return out;
}

inline std::string describe(const RankBy& rank) {
  using Kind = RankBy::Kind;
  static constexpr const char* kNames[] = {"", " slot", " node", " fill", " span"};
  std::string out = rank.kind == Kind::kUnit ? fmt::format(" {}", unit_name(rank.unit))
                                             : kNames[static_cast<int>(rank.kind)];
  if (rank.span) out += ":span";
  if (rank.fill) out += ":fill";
  return out;
}

inline std::string describe(const BindTo& bind) {
  using Kind = BindTo::Kind;
  std::string out;
  if (bind.kind == Kind::kNone) out += " none";
  if (bind.kind == Kind::kUnit) out += fmt::format(" {}", unit_name(bind.unit));
  if (bind.count != 1) out += fmt::format(" x{}", bind.count);
  if (bind.kind == Kind::kCpuList) {
    out += " cpus";
    for (const auto& list : bind.cpu_lists) out += fmt::format(" {}", fmt::join(list, "+"));
  }
  if (bind.overload_allowed) out += " overload";
  if (bind.if_supported) out += " if-supported";
  return out;
}

// "4 x ./a.out in DIR with A=1 -B": -B is one that `base` has and the members have not.
inline std::string describe(const AppRequest& app, const Environment& base) {
  std::string out = app.count ? fmt::format("{} x ", *app.count) : "slots x ";
  if (!app.role.empty()) out += app.role + ": ";
  out += fmt::format("{}", fmt::join(app.command, " "));
  if (app.per_node) out += fmt::format(", {} per node", *app.per_node);
  if (!app.wdir.empty()) out += ", in " + app.wdir;
  if (!app.search_path.empty()) out += ", path " + app.search_path;
  if (app.limits.cpus != 0) out += fmt::format(", {} cpus", app.limits.cpus);
  if (app.limits.memory_bytes != 0) out += fmt::format(", {} bytes", app.limits.memory_bytes);
  for (const auto& [name, value] : app.environment) {
    const auto before = base.find(name);
    if (before == base.end() || before->second != value) out += fmt::format(", {}={}", name, value);
  }
  for (const auto& [name, value] : base)
    out += app.environment.contains(name) ? "" : ", no " + name;
  return out;
}

inline std::vector<std::string> describe_output(const JobSpec& spec) {
  std::vector<std::string> out;
  const OutputRequest& to = spec.output;
  if (to.tag == OutputRequest::Tag::kJobRank) out.emplace_back("tags");
  if (to.tag == OutputRequest::Tag::kRank) out.emplace_back("ranks");
  if (to.timestamp) out.emplace_back("timestamps");
  if (to.merge_stderr) out.emplace_back("merged");
  if (!to.folder.empty())
    out.push_back("folder " + to.folder + (to.job_folder ? "" : " without 1"));
  if (!to.copy) out.emplace_back("no copy");
  if (to.raw) out.emplace_back("raw");
  if (!to.stdout_pattern.empty()) out.push_back("stdout " + to.stdout_pattern);
  if (!to.stderr_pattern.empty()) out.push_back("stderr " + to.stderr_pattern);
  const auto streams = [&](const char* name, const StreamChoice& choice) {
    if (choice.any())
      out.push_back(fmt::format("{} {} of {}", name, choice.all, fmt::join(choice.of, ",")));
  };
  streams("redirect", to.log.redirect);
  streams("tee", to.log.tee);
  if (to.log.any()) out.push_back(fmt::format("to {} with {}", to.log.folder, to.log.prefix));
  if (!to.log.shown.empty()) out.push_back(fmt::format("shown {}", fmt::join(to.log.shown, ",")));
  if (spec.virtual_local_rank) out.emplace_back("virtual local rank");
  if (spec.stdin_to.to == StdinRequest::To::kAll) out.emplace_back("stdin all");
  if (spec.stdin_to.to == StdinRequest::To::kNone) out.emplace_back("stdin none");
  if (spec.stdin_to.rank != 0) out.push_back(fmt::format("stdin {}", spec.stdin_to.rank));
  return out;
}

// Returns a line for each program, then one for the job, then its notes.
inline std::string describe(const JobSpec& spec, const Environment& base) {
  std::string out;
  for (const AppRequest& app : spec.apps) out += describe(app, base) + "\n";
  std::vector<std::string> words = describe_output(spec);
  const auto add = [&words](const char* name, const std::string& text) {
    if (!text.empty()) words.push_back(name + text);
  };
  if (spec.elastic) words.push_back(fmt::format("elastic {}:{}", spec.min, spec.max));
  if (spec.initial_size != 0) words.push_back(fmt::format("start {}", spec.initial_size));
  add("map", describe(spec.mapping.map));
  add("rank", describe(spec.mapping.rank));
  add("bind", describe(spec.mapping.bind));
  add("cpu-set ", fmt::format("{}", fmt::join(spec.mapping.cpu_set, ",")));
  for (const RankPlace& place : spec.mapping.ranks) {
    words.push_back(fmt::format("rank {} on {}", place.rank, fmt::join(place.cpus, ",")));
    if (place.package) words.back() += fmt::format(" of package {}", *place.package);
  }
  add("one each on ", fmt::format("{}", fmt::join(spec.mapping.sequence, ",")));
  for (const HostRequest& host : spec.hosts) {
    add("host ", (host.user.empty() ? "" : host.user + "@") +
                     fmt::format("{}:{}", host.name, host.slots) +
                     (host.max_slots != 0 ? fmt::format("/{}", host.max_slots) : ""));
  }
  const std::vector<std::string>& ssh = spec.ssh_command;
  add("reached by ssh ", fmt::format("{}", fmt::join(ssh.begin() + 1, ssh.end(), " ")));
  add("radix ", spec.tree_radix ? fmt::format("{}", *spec.tree_radix) : "");
  add("agent in ", spec.agent_prefix);
  const std::pair<bool, const char*> flags[] = {
      {spec.fork_agents, "agents by fork"},
      {spec.oversubscribe, "oversubscribed"},
      {spec.compat == Compat::kMpich, "mpich"},
      {spec.display.map, "show map"},
      {spec.display.allocation, "show allocation"},
      {spec.display.topology, "show topology"},
      {spec.display.bindings, "show bindings"},
      {spec.do_not_launch, "do not launch"},
      {spec.keep_going, "keep going"},
      {spec.ulfm, "ulfm"},
      {spec.quiet, "quiet"},
      {spec.verbose, "verbose"},
      {spec.print_exit_codes, "exit codes"},
      {!spec.replace, "no replace"},
      {spec.restart_policy == RestartPolicy::kRestart, "restart"}};
  for (const auto& [on, name] : flags) add("", on ? name : "");
  if (spec.timeout != base::Duration{})
    words.push_back(fmt::format("timeout {}", std::chrono::duration<double>(spec.timeout).count()));
  if (spec.forward_signals)
    add("signals ", fmt::format("{}", fmt::join(*spec.forward_signals, ",")));
  add("restarts ", spec.max_restarts ? fmt::format("{}", *spec.max_restarts) : "");
  add("job file ", spec.job_file);
  add("pid to ", spec.report_pid);
  if (!words.empty()) out += fmt::format("[{}]\n", fmt::join(words, "; "));
  for (const std::string& note : spec.notes) out += "note: " + note + "\n";
  return out;
}

}  // namespace regroup::spec
