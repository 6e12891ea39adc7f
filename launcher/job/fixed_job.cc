// The file is locked before it gets its name: a process that searches for jobs takes the lock for a
// moment, and must not find the file unlocked.
#include "launcher/job/fixed_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/descriptor_message.h"
#include "base/printable.h"
#include "launcher/job/cluster_spec.h"
#include "launcher/job/job_requests.h"
#include "launcher/metrics/usage_columns.h"
#include "launcher/transport/unix_socket.h"

namespace regroup::job {
namespace {

using nlohmann::json;

constexpr std::chrono::seconds kAnswer{60};  // of an agent on a busy machine
constexpr std::chrono::hours kSaved{24};     // the agent ends a save that makes no progress

// Of the job's parameter server; null if it has none.
json server_status(const JobFiles& files) {
  const auto socket = transport::connect_unix(files.ps_status());
  if (!socket.ok()) return {};
  const auto answer =
      base::receive_descriptors(socket->get(), base::SystemClock().now() + std::chrono::seconds(5));
  return answer.ok() ? json::parse(answer->text, nullptr, false) : json();
}

// Of clients in mode ssp; empty in mode async.
std::string clock_lines(const json& status) {
  const json clocks = status.value("clocks", json::array());
  if (clocks.empty()) return "";
  std::uint64_t lowest = ~std::uint64_t{0}, highest = 0;
  for (const json& one : clocks) {
    const auto clock = one.value("clock", std::uint64_t{0});
    lowest = std::min(lowest, clock);
    highest = std::max(highest, clock);
  }
  std::string out =
      fmt::format("mode ssp, staleness {}: {}, clocks {} to {}\n", status.value("staleness", 0ULL),
                  base::counted(clocks.size(), "client"), lowest, highest);
  const auto turns = status.value("turns_by_staleness", std::vector<double>());
  const double all = std::accumulate(turns.begin(), turns.end(), 0.0);
  if (all > 0) out += "turns by clocks that the slowest client was behind:";
  for (std::size_t i = 0; i < turns.size(); ++i) {
    if (turns[i] > 0) out += fmt::format("  {}: {:.0f} %", i, 100 * turns[i] / all);
  }
  if (all > 0) out += "\n";
  out += fmt::format("{:<14} {:<14} {:>8} {:>10} {:>16} {}\n", "client", "host", "pid", "clock",
                     "held up others", "waits for");
  for (const json& one : clocks) {
    out += fmt::format("{:<14} {:<14} {:>8} {:>10} {:>14.1f} s {}\n", one.value("name", ""),
                       one.value("host", ""), one.value("pid", 0), one.value("clock", 0ULL),
                       one.value("held_up_others", 0.0), one.value("waits_for", "-"));
  }
  return out;
}

// Of clients in mode sync; empty in other modes.
std::string step_lines(const json& status) {
  if (!status.contains("step")) return "";
  const json clients = status.value("step_clients", json::array());
  std::string out = fmt::format(
      "mode sync: step {} has {} of {} leaves; {}; leaves taken over from slow ones: {}\n",
      status.value("step", 0ULL), status.value("leaves_there", 0U), status.value("leaves", 0U),
      base::counted(clients.size(), "client"), status.value("leaves_taken_over", 0ULL));
  if (!clients.empty()) out += fmt::format("{:<14} {:>8} {}\n", "client", "pid", "computes leaf");
  for (const json& one : clients) {
    std::string leaves;
    for (const json& leaf : one.value("leaves", json::array()))
      leaves += (leaves.empty() ? "" : ",") + leaf.dump();
    out += fmt::format("{:<14} {:>8} {}\n", one.value("name", ""), one.value("pid", 0),
                       leaves.empty() ? "-" : leaves);
  }
  return out;
}

std::string server_lines(const json& status) {
  const json servers = status.value("servers", json::array());
  const json stores = status.value("stores", json::array());  // of several hosts
  std::size_t wide = 4;
  for (const json& store : stores) wide = std::max(wide, store.value("host", "").size());
  const auto of_host = [&](const std::string& host) {
    return stores.empty() ? std::string() : fmt::format("{:<{}} ", host, wide);
  };
  std::string out =
      fmt::format("parameter server: view {}, {}{} in {:.1f} GiB, {}, {}, {} so far, {}\n",
                  status.value("view", 0ULL), base::counted(servers.size(), "server"),
                  stores.empty() ? "" : " on " + base::counted(stores.size(), "host"),
                  static_cast<double>(status.value("bytes", 0ULL)) / (1 << 30),
                  base::counted(status.value("ranges", 0U), "range"),
                  base::counted(status.value("updates", 0ULL), "update"),
                  base::counted(status.value("clients", 0ULL), "client"),
                  base::counted(status.value("restarts", 0U), "restart"));
  if (const auto replicas = status.value("replicas", 0U); replicas != 0)
    out += fmt::format("{} copies of each range; the job survives the loss of {}\n", replicas,
                       base::counted(status.value("may_be_lost", 0U), "more host"));
  out += of_host("host") + fmt::format("{:>6} {:>8} {:>10} {:>12} {:>8} {}\n", "server", "pid",
                                       "used", "updates", "restarts", "ranges");
  for (const json& server : servers) {
    std::string tables;
    const json of_server = server.value("tables", json::object());
    for (const auto& [name, ranges] : of_server.items())
      tables += fmt::format("{}{}[{}]", tables.empty() ? "" : " ", name, ranges.get<std::string>());
    if (tables.empty()) tables = std::to_string(server.value("ranges", 0U));
    out += of_host(server.value("host", "-")) +
           fmt::format("{:>6} {:>8} {:>6} MiB {:>12} {:>8} {}\n", server.value("server", 0U),
                       server.value("pid", 0), server.value("bytes", 0ULL) >> 20,
                       server.value("updates", 0ULL), server.value("restarts", 0U), tables);
  }
  for (const json& store : stores) {
    if (store.contains("why")) out += store.value("why", "") + "\n";
  }
  for (const json& server : servers) {
    const auto number = server.value("server", 0U);
    const std::string where =
        stores.empty() ? "" : fmt::format("host {}: ", server.value("host", "-"));
    if (server.contains("still_seconds")) {
      out += fmt::format("{}server {} has stood still for {:.1f} s in shard {}\n", where, number,
                         server.value("still_seconds", 0.0), server.value("still_shard", 0U));
    }
    if (const auto hangs = server.value("hangs", 0ULL); hangs > 0)
      out += fmt::format("{}server {} was replaced {} because it hung\n", where, number,
                         base::counted(hangs, "time"));
  }
  if (const auto step = status.value("checkpoint", 0ULL); step != 0)
    out += fmt::format("newest checkpoint: {}\n", step);
  for (const json& move : status.value("moves", json::array())) {
    const std::string where =
        stores.empty() ? "" : fmt::format("host {}: ", move.value("host", "-"));
    out += fmt::format("{}view {}: shard {} moved from server {} to server {}: {}\n", where,
                       move.value("view", status.value("view", 0ULL)), move.value("shard", 0U),
                       move.value("from", 0U), move.value("to", 0U), move.value("why", ""));
  }
  return out + clock_lines(status) + step_lines(status);
}

// Sends `word` to the parameter server; returns its sentence.
base::Result<std::string> ask_servers(const JobFiles& files, const std::string& command,
                                      const std::string& word, const std::string& options,
                                      base::Duration limit) {
  const std::string none =
      fmt::format("{}: job {} has no parameter server ({})", command, files.id(), options);
  return ask_job(files.ps_resize(), none, word, limit);
}

// "worker:1", as kill-member takes it; "" in a job without roles.
std::string role_of(const json& member) {
  if (!member.contains("role")) return "";
  return fmt::format("{}:{}", member.value("role", ""), member.value("role_index", 0U));
}

std::string shown_value(const json& value) { return value.is_null() ? "-" : value.dump(); }

}  // namespace

base::Result<std::string> resize_servers(const JobFiles& files, std::uint32_t servers) {
  return ask_servers(files, fmt::format("resize ps={}", servers), fmt::format("ps {}", servers),
                     "--role ps=MIN:MAX --ps-memory BYTES", kAnswer);
}

base::Result<std::string> save_tables(const JobFiles& files) {
  return ask_servers(files, "checkpoint save", "save", "--role ps=N --ps-memory BYTES", kSaved);
}

base::Result<std::string> kill_member(const JobFiles& files, const std::string& member) {
  return ask_job(files.kill_socket(), only_status(files.id()), member, kAnswer);
}

std::optional<FixedJob> announce_job(const spec::Environment& environment, const std::string& id,
                                     std::uint32_t members, const std::vector<spec::Role>& roles) {
  auto made = make_job_files(environment, id);
  if (!made.ok()) return {};
  HeldJobFiles files(std::move(*made));
  const std::string unnamed = files->fixed() + ".next";
  json facts{{"size", members}, {"roles", json::array()}};  // of ranks, in their order
  for (const Task& task : tasks_of(roles))
    facts["roles"].push_back({{"role", roles[task.role].name}, {"role_index", task.index}});
  auto lock = base::FileLock::take(unnamed, facts.dump());
  if (lock.ok() && std::rename(unnamed.c_str(), files->fixed().c_str()) == 0)
    return FixedJob{std::move(*lock), std::move(files)};
  return {};
}

base::Result<std::string> fixed_job_status(const JobFiles& files) {
  std::ifstream facts(files.fixed()), usage(files.usage());
  const json known = json::parse(facts, nullptr, false), used = json::parse(usage, nullptr, false);
  if (!known.is_object() || !is_fixed(files))
    return base::not_found(fmt::format("job {} has ended", files.id()));
  json out = {{"job", files.id()},
              {"stage", "running"},
              {"fixed", true},
              {"size", known.value("size", 0)},
              {"members", json::array()}};
  if (used.is_object() && used.contains("members")) out["members"] = used["members"];
  const json roles = known.value("roles", json::array());
  for (json& member : out["members"]) {
    const auto rank = member.value("rank", std::size_t{0});
    if (rank < roles.size()) member.update(roles[rank]);
  }
  const json server = server_status(files);
  if (server.is_object()) out["parameter_server"] = server;
  return out.dump();
}

std::string fixed_job_table(const std::string& status) {
  const json job = json::parse(status, nullptr, false);
  if (!job.is_object()) return "";
  const json members = job.value("members", json::array());
  std::string out = fmt::format("job {}: running with {}, a fixed number\n", job.value("job", ""),
                                base::counted(job.value("size", 0U), "member"));
  if (job.contains("parameter_server")) out += server_lines(job["parameter_server"]);
  if (members.empty()) return out + "no information about them yet\n";
  std::size_t wide = 4, wide_role = 0;
  for (const json& member : members) {
    wide = std::max(wide, member.value("host", "-").size());
    wide_role = std::max(wide_role, role_of(member).size());
  }
  const auto role = [&](const std::string& text) {
    return wide_role == 0 ? text
                          : fmt::format("{:<{}} ", text, std::max<std::size_t>(4, wide_role));
  };
  out += fmt::format("{:>6} {:>5} {}{:<{}} {:>8} {:>10} {:>6} {:>10} {}\n", "member", "rank",
                     wide_role == 0 ? "" : role("role"), "host", wide, "pid", "cpu s", "cpus",
                     "memory", "GPUs");
  for (const json& member : members) {
    out += fmt::format("{:>6} {:>5} {}{:<{}} {:>8} {:>10.2f} {}\n", shown_value(member["id"]),
                       shown_value(member["rank"]), role(role_of(member)),
                       member.value("host", "-"), wide, member.value("pid", 0),
                       member.value("cpu_seconds", 0.0), metrics::usage_columns(member));
  }
  out += metrics::gpu_fault_lines(members);
  return out;
}

}  // namespace regroup::job
