// Names of metrics follow prometheus.io/docs/practices/naming: base units, _total for counters.
#include "launcher/metrics/usage_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "base/json_input.h"

namespace regroup::metrics {
namespace {

using nlohmann::json;

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return out;
}

// One metric with a line for each object of `of` that has a number called `field`.
class Metric {
 public:
  Metric(std::string& out, const char* name, const char* type, const char* help)
      : out_(out), name_(name) {
    out_ += fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n", name, type, help);
  }
  void add(const std::string& labels, const json& of, const char* field) {
    const auto value = of.find(field);
    if (value != of.end() && value->is_number())
      out_ += fmt::format("{}{{{}}} {}\n", name_, labels, value->dump());
  }

 private:
  std::string& out_;
  const char* name_;
};

struct MemberMetric {
  const char *name, *type, *help, *field;
};
constexpr MemberMetric kMemberMetrics[] = {
    {"regroup_member_step", "gauge", "Last step that the member has applied.", "step"},
    {"regroup_member_loss", "gauge", "Loss of that step.", "loss"},
    {"regroup_member_cpu_seconds_total", "counter", "Processor time of the member's processes.",
     "cpu_seconds"},
    {"regroup_member_cpus", "gauge", "Processor use of the member, in processors.", "cpus"},
    {"regroup_member_memory_bytes", "gauge", "Memory of the member's processes.", "memory_bytes"}};
constexpr MemberMetric kGpuMetrics[] = {
    {"regroup_gpu_busy_percent", "gauge", "Part of the time in which the GPU ran something.",
     "busy_percent"},
    {"regroup_gpu_memory_used_bytes", "gauge", "Memory of the GPU that is in use.", "memory_used"},
    {"regroup_gpu_memory_total_bytes", "gauge", "Memory of the GPU.", "memory_total"},
    {"regroup_gpu_power_watts", "gauge", "Power that the GPU draws.", "watts"},
    {"regroup_rank_gpu_busy_percent", "gauge",
     "Part of the time in which the GPU ran something of the rank.", "rank_busy_percent"},
    {"regroup_rank_gpu_memory_used_bytes", "gauge", "Memory of the GPU that the rank uses.",
     "rank_memory_used"}};
constexpr MemberMetric kJobMetrics[] = {
    {"regroup_generation", "gauge", "Current generation of the membership.", "generation"},
    {"regroup_members", "gauge", "Number of members of the World.", "size"},
    {"regroup_target_members", "gauge", "Target number of members.", "target"},
    {"regroup_step", "gauge", "Last step that is committed.", "step"}};
// Of `progress` in the status; what is unknown has no line.
constexpr MemberMetric kProgressMetrics[] = {
    {"regroup_epoch", "gauge", "Epoch of the next step, from 1 on.", "epoch"},
    {"regroup_epochs", "gauge", "Number of epochs of the training.", "epochs"},
    {"regroup_loss", "gauge", "Last loss of the training.", "loss"},
    {"regroup_steps_per_second", "gauge", "Committed steps per second.", "steps_per_second"},
    {"regroup_samples_per_second", "gauge", "Samples of committed steps per second.",
     "samples_per_second"},
    {"regroup_remaining_seconds", "gauge", "Time until the end of the training at this speed.",
     "seconds_left"}};

// Of `parameter_server` in the status.
constexpr MemberMetric kServerMetrics[] = {
    {"regroup_ps_view", "gauge", "Number of the view: which server has which ranges.", "view"},
    {"regroup_ps_updates_total", "counter", "Pushes applied, one for each range.", "updates"},
    {"regroup_ps_clients_total", "counter", "Processes that have joined the parameter server.",
     "clients"},
    {"regroup_ps_restarts_total", "counter", "Servers that were started after another's end.",
     "restarts"},
    {"regroup_ps_step", "gauge", "In mode sync: steps that the tables have.", "step"},
    {"regroup_ps_leaves_taken_over_total", "counter",
     "In mode sync: leaves that a client began while another one had them.", "leaves_taken_over"}};
// Of each of its servers.
constexpr MemberMetric kOneServerMetrics[] = {
    {"regroup_ps_server_ranges", "gauge", "Ranges that the server has.", "ranges"},
    {"regroup_ps_server_updates_total", "counter", "Pushes applied to the server's ranges.",
     "updates"},
    {"regroup_ps_server_used_bytes", "gauge", "Memory that the server's ranges use.", "bytes"},
    {"regroup_ps_server_restarts_total", "counter", "Starts of the server after an end of it.",
     "restarts"},
    {"regroup_ps_server_hangs_total", "counter", "Starts of the server after it had hung.",
     "hangs"}};

// Of each of its clients in mode ssp.
constexpr MemberMetric kClockMetrics[] = {
    {"regroup_ps_clock", "gauge", "Turns that the client has completed.", "clock"},
    {"regroup_ps_held_up_others_seconds_total", "counter",
     "Time in which other clients waited for the client's clock.", "held_up_others"}};

// Numbers of the parameter server that have a label besides the job.
void add_labelled(std::string& out, const std::string& job, const json& server) {
  const auto labels = [&job](const char* name, const std::string& value) {
    return fmt::format("job=\"{}\",{}=\"{}\"", job, name, value);
  };
  if (const json ranges = server.value("ranges", json()),
      waiting = server.value("ranges_waiting", json());
      ranges.is_number_unsigned() && waiting.is_number_unsigned()) {
    const auto all = ranges.get<std::uint64_t>(), without = waiting.get<std::uint64_t>();
    const json states = {{"served", all - std::min(all, without)}, {"waiting", without}};
    Metric metric(out, "regroup_ps_ranges", "gauge",
                  "Ranges of all tables: served, or waiting for their next server.");
    for (const char* state : {"served", "waiting"})
      metric.add(labels("state", state), states, state);
  }
  if (const json store = server.value("store", json()); store.is_object()) {
    Metric metric(out, "regroup_ps_store_bytes", "gauge",
                  "Memory of the parameter server, reserved at its start.");
    for (const char* kind : {"tables", "free", "log"})
      metric.add(labels("kind", kind), store, kind);
  }
}

// The metrics that `of` has.
void add_known(std::string& out, std::span<const MemberMetric> metrics, const std::string& job,
               const json& of) {
  for (const MemberMetric& one : metrics) {
    if (of.is_object() && of.contains(one.field))
      Metric(out, one.name, one.type, one.help).add(fmt::format("job=\"{}\"", job), of, one.field);
  }
}

std::string member_labels(const std::string& job, const json& member) {
  const json id = member.value("id", json()), rank = member.value("rank", json());
  return fmt::format("job=\"{}\",member=\"{}\",rank=\"{}\"", job, id.is_null() ? "" : id.dump(),
                     rank.is_null() ? "" : rank.dump());
}

template <class T>
std::string text_of(const std::optional<T>& value) {
  return value ? fmt::format("{}", *value) : std::string();
}

// Reports of older agents lack it.
template <class T>
void read_optional(const json& from, const char* name, std::optional<T>& to) {
  if (from.contains(name)) to = from.at(name).get<T>();
}

// It goes into a line of the log as it is.
bool is_uuid(const std::string& text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return c > ' ' && c != ',' && c != '"'; });
}

}  // namespace

std::string usage_csv_header() {
  return "time,host,member,rank,pid,cpu_seconds,cpus,memory_bytes,processes,gpu,gpu_busy_percent,"
         "gpu_memory_bytes,gpu_watts,rank_gpu_busy_percent,rank_gpu_memory_bytes\n";
}

std::string usage_csv(double seconds, const std::vector<UsageSample>& samples) {
  std::string out;
  for (const UsageSample& one : samples) {
    const std::string left = fmt::format(
        "{:.3f},{},{},{},{},{:.2f},{:.2f},{},{}", seconds, one.host, one.of.member, one.of.rank,
        one.of.pid, one.usage.cpu_seconds, one.cpus, one.usage.memory_bytes, one.usage.processes);
    if (one.gpus.empty()) out += left + ",,,,,,\n";
    for (const GpuUse& gpu : one.gpus)
      out += fmt::format("{},{},{},{},{:.1f},{},{}\n", left, gpu.uuid, gpu.busy_percent,
                         gpu.memory_used, gpu.watts, text_of(gpu.rank_busy_percent),
                         text_of(gpu.rank_memory_used));
  }
  return out;
}

std::string usage_json(const std::vector<UsageSample>& samples) {
  json members = json::array();
  for (const UsageSample& one : samples) {
    json gpus = json::array();
    for (const GpuUse& gpu : one.gpus) {
      gpus.push_back({{"uuid", gpu.uuid},
                      {"busy_percent", gpu.busy_percent},
                      {"memory_used", gpu.memory_used},
                      {"memory_total", gpu.memory_total},
                      {"watts", gpu.watts}});
      if (gpu.rank_busy_percent) gpus.back()["rank_busy_percent"] = *gpu.rank_busy_percent;
      if (gpu.rank_memory_used) gpus.back()["rank_memory_used"] = *gpu.rank_memory_used;
      if (!gpu.faults.empty()) gpus.back()["faults"] = gpu.faults;
    }
    members.push_back({{"id", one.of.member},
                       {"rank", one.of.rank},
                       {"host", one.host},
                       {"pid", one.of.pid},
                       {"cpu_seconds", one.usage.cpu_seconds},
                       {"cpus", one.cpus},
                       {"memory_bytes", one.usage.memory_bytes},
                       {"processes", one.usage.processes},
                       {"gpus", std::move(gpus)}});
  }
  return json{{"members", std::move(members)}}.dump(-1, ' ', false,
                                                    json::error_handler_t::replace) +
         "\n";
}

base::Result<std::vector<UsageSample>> usage_from_json(const std::string& text) {
  constexpr std::size_t kMost = 65536, kMostFaults = 16;
  static constexpr std::string_view kReal[] = {"cpu_seconds", "cpus", "watts"};
  const base::Status refused(base::Code::kDataLoss, "malformed usage report of a host");
  const json report = base::parse_json(text);
  if (!report.is_object() || !report.contains("members") || report["members"].size() > kMost ||
      !base::whole_but(report, kReal))
    return refused;
  std::vector<UsageSample> out;
  try {
    for (const json& member : report["members"]) {
      UsageSample& one = out.emplace_back();
      member.at("id").get_to(one.of.member);
      member.at("rank").get_to(one.of.rank);
      member.at("pid").get_to(one.of.pid);
      member.at("cpu_seconds").get_to(one.usage.cpu_seconds);
      member.at("cpus").get_to(one.cpus);
      member.at("memory_bytes").get_to(one.usage.memory_bytes);
      member.at("processes").get_to(one.usage.processes);
      for (const json& gpu : member.at("gpus")) {
        one.gpus.push_back({gpu.at("uuid"), gpu.at("busy_percent"), gpu.at("memory_used"),
                            gpu.at("memory_total"), gpu.at("watts")});
        read_optional(gpu, "rank_busy_percent", one.gpus.back().rank_busy_percent);
        read_optional(gpu, "rank_memory_used", one.gpus.back().rank_memory_used);
        if (gpu.contains("faults")) gpu.at("faults").get_to(one.gpus.back().faults);
      }
      for (const GpuUse& gpu : one.gpus) {
        if (!is_uuid(gpu.uuid) || gpu.faults.size() > kMostFaults) return refused;
      }
    }
  } catch (const json::exception&) {
    return refused;
  }
  return out;
}

std::string prometheus_text(const std::string& status_json) {
  const json status = json::parse(status_json, nullptr, false);
  std::string out;
  if (!status.is_object()) return out;
  const std::string job = escaped(status.value("job", ""));
  for (const MemberMetric& one : kJobMetrics)
    Metric(out, one.name, one.type, one.help)
        .add(fmt::format("job=\"{}\"", job), status, one.field);
  if (const auto plane = status.find("plane"); plane != status.end() && plane->is_string())
    out += fmt::format(
        "# HELP regroup_plane_info Data plane of the World, as a label.\n"
        "# TYPE regroup_plane_info gauge\nregroup_plane_info{{job=\"{}\",plane=\"{}\"}} 1\n",
        job, escaped(plane->get<std::string>()));
  add_known(out, kProgressMetrics, job, status.value("progress", json::object()));
  const json server = status.value("parameter_server", json::object());
  add_known(out, kServerMetrics, job, server);
  if (server.is_object()) add_labelled(out, job, server);
  for (const MemberMetric& one : kOneServerMetrics) {
    if (!server.is_object() || !server.contains("servers")) break;
    Metric metric(out, one.name, one.type, one.help);
    for (const json& each : server["servers"]) {
      const std::string host =  // of a server of several hosts
          each.contains("host") ? fmt::format(",host=\"{}\"", escaped(each.value("host", ""))) : "";
      metric.add(fmt::format("job=\"{}\",server=\"{}\"{}", job, each.value("server", 0U), host),
                 each, one.field);
    }
  }
  for (const MemberMetric& one : kClockMetrics) {
    if (!server.is_object() || !server.contains("clocks")) break;
    Metric metric(out, one.name, one.type, one.help);
    for (const json& each : server["clocks"]) {
      metric.add(fmt::format("job=\"{}\",client=\"{}\",name=\"{}\"", job,
                             each.value("client", 0ULL), escaped(each.value("name", ""))),
                 each, one.field);
    }
  }
  const json members = status.value("members", json::array());
  for (const MemberMetric& one : kMemberMetrics) {
    Metric metric(out, one.name, one.type, one.help);
    for (const json& member : members) metric.add(member_labels(job, member), member, one.field);
  }
  for (const MemberMetric& one : kGpuMetrics) {
    Metric metric(out, one.name, one.type, one.help);
    for (const json& member : members) {
      for (const json& gpu : member.value("gpus", json::array()))
        metric.add(fmt::format("{},gpu=\"{}\"", member_labels(job, member),
                               escaped(gpu.value("uuid", ""))),
                   gpu, one.field);
    }
  }
  Metric faults(out, "regroup_gpu_faults", "gauge",
                "Number of reasons why the GPU is not healthy.");
  for (const json& member : members) {
    for (const json& gpu : member.value("gpus", json::array()))
      faults.add(
          fmt::format("{},gpu=\"{}\"", member_labels(job, member), escaped(gpu.value("uuid", ""))),
          {{"faults", gpu.value("faults", json::array()).size()}}, "faults");
  }
  return out;
}

}  // namespace regroup::metrics
