// The option table of `regroup place`, and its output as text and as JSON.
#include "launcher/placement/place_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/nearest.h"
#include "base/values.h"
#include "launcher/spec/mapping.h"

namespace regroup::placement {
namespace {

using base::invalid_argument;
using base::Result;
using base::Status;

struct Word {
  std::vector<std::string> names;
  const char* value;  // "": a flag
  const char* help;
  Status (*apply)(PlaceCommand& command, const std::string& name, const std::string& value);
};

constexpr std::uint32_t kMostRanks = 65536;  // the limit of a job
constexpr std::uint32_t kMostHosts = 1 << 17;

Status count(const std::string& name, const std::string& text, std::uint32_t least,
             std::uint32_t& out) {
  REGROUP_RETURN_IF_ERROR(base::parse_count(name, text, least, out));
  const std::uint32_t most = name == "--hosts" ? kMostHosts : kMostRanks;
  return out <= most ? Status()
                     : base::bad_value(name, text, fmt::format("expected at most {}", most));
}

Status check_ranks(const PlaceCommand& command) {
  std::uint64_t ranks = std::uint64_t{command.request.sets} * command.request.set.ranks;
  for (const ServerRole& server : command.request.servers) ranks += server.count;
  if (ranks <= kMostRanks) return {};
  return invalid_argument(fmt::format("{} ranks: expected at most {}", ranks, kMostRanks));
}

Status packing(PlaceCommand& command, const std::string& name, const std::string& text) {
  command.of_gpus = true;
  const Status status = spec::parse_packing(text, command.request.packing);
  return status.ok() ? status : base::bad_value(name, text, status.message());
}

Status gpu_numbers(const std::string& name, const std::string& text, GpuSet& out) {
  std::vector<std::uint32_t> numbers;
  if (Status status = spec::parse_cpu_list(text, numbers); !status.ok())
    return base::bad_value(name, text, "expected a GPU list, for example 0,2-5");
  out = 0;
  for (const std::uint32_t number : numbers) {
    if (number >= kMostGpus)
      return base::bad_value(name, text,
                             fmt::format("GPU {}: expected at most {}", number, kMostGpus - 1));
    out |= bit_of(number);
  }
  return {};
}

Status number(const std::string& name, const std::string& text, double& out) {
  std::size_t used = 0;
  try {
    out = std::stod(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  const bool good = used == text.size() && !text.empty() && std::isfinite(out) && out > 0;
  return good ? Status() : base::bad_value(name, text, "expected a positive number");
}

Status refused(const std::string& name, const std::string& text, const Status& status) {
  return status.ok() ? status : base::bad_value(name, text, status.message());
}

Status map_by(PlaceCommand& command, const std::string& name, const std::string& text) {
  constexpr std::string_view kDevice = "device=";
  if (!text.starts_with(kDevice))
    return refused(name, text, spec::parse_map_by(text, command.mapping.map));
  if (text.size() == kDevice.size())
    return base::bad_value(
        name, text, "expected device=NAME with gpu, nic, or a NIC or GPU such as mlx5_0 or gpu3");
  command.of_gpus = true;
  return command.request.device = text.substr(kDevice.size()), Status();
}

using C = PlaceCommand;
using S = const std::string;

const std::vector<Word>& words_known() {
  static const std::vector<Word> kWords = {
      {{"machine"},
       "FILE",
       "recorded or synthetic machine to place the ranks on",
       [](C& c, S&, S& v) { return c.machine = v, Status(); }},
      {{"fabric"},
       "FILE",
       "read the network between such machines from FILE: Slurm's topology.conf, Kubernetes nodes "
       "or YAML",
       [](C& c, S&, S& v) { return c.fabric = v, Status(); }},
      {{"hosts"},
       "N",
       "number of such machines on one switch (default: 1)",
       [](C& c, S& n, S& v) { return count(n, v, 1, c.hosts); }},
      {{"np", "n", "nrs"},
       "N",
       "number of ranks, or of resource sets (jsrun)",
       [](C& c, S& n, S& v) { return count(n, v, 1, c.request.sets); }},
      {{"tasks-per-rs", "a"},
       "N",
       "number of ranks of a resource set (default: 1)",
       [](C& c, S& n, S& v) { return count(n, v, 1, c.request.set.ranks); }},
      {{"gpu-per-rs", "g"},
       "N",
       "number of GPUs of a resource set; 0: place ranks by processors (default: 1)",
       [](C& c, S& n, S& v) {
         c.of_gpus = v != "0";
         return count(n, v, 0, c.request.set.gpus);
       }},
      {{"cpu-per-rs", "c"},
       "N",
       "number of cores of a resource set (default: its share)",
       [](C& c, S& n, S& v) { return count(n, v, 1, c.request.set.cpus); }},
      {{"rs-per-host", "r"},
       "N",
       "maximum number of resource sets on a host",
       [](C& c, S& n, S& v) { return count(n, v, 1, c.request.sets_per_host); }},
      {{"min"},
       "N",
       "minimum size of an elastic job; print the order in which the job gives up ranks",
       [](C& c, S& n, S& v) { return count(n, v, 1, c.request.min_sets); }},
      {{"placement"},
       "best|pack|spread|any",
       "best: highest collective bandwidth; pack: fewest hosts; spread: most hosts; any: least "
       "fragmentation "
       "(default: best)",
       packing},
      {{"map-by"},
       "OBJECT",
       "device=NAME: near a NIC or GPU; device=nic: consecutive ranks near different NICs; or an "
       "object of "
       "mpirun's --map-by",
       map_by},
      {{"rank-by"},
       "OBJECT",
       "as mpirun's --rank-by",
       [](C& c, S& n, S& v) { return refused(n, v, spec::parse_rank_by(v, c.mapping.rank)); }},
      {{"bind-to"},
       "OBJECT",
       "as mpirun's --bind-to; with GPUs, objects of the cores near them",
       [](C& c, S& n, S& v) { return refused(n, v, spec::parse_bind_to(v, c.mapping.bind)); }},
      {{"label"},
       "NAME",
       "use only GPUs with this label or product name",
       [](C& c, S&, S& v) { return c.of_gpus = true, c.request.label = v, Status(); }},
      {{"free"},
       "GPUS",
       "GPUs that are free, for example 0,2-5 (default: all)",
       [](C& c, S& n, S& v) {
         return c.of_gpus = true, c.free.emplace(), gpu_numbers(n, v, *c.free);
       }},
      {{"keep"},
       "GPUS",
       "GPUs that the placement must contain",
       [](C& c, S& n, S& v) { return c.of_gpus = true, gpu_numbers(n, v, c.request.keep); }},
      {{"ps"},
       "N",
       "number of parameter servers in addition to the ranks, without GPUs",
       [](C& c, S& n, S& v) {
         return c.of_gpus = true, c.request.servers = {{"ps", 0}},
                count(n, v, 1, c.request.servers[0].count);
       }},
      {{"gradient"},
       "BYTES",
       "gradient size of a training step, to predict the step's time",
       [](C& c, S& n, S& v) { return number(n, v, c.gradient_bytes); }},
      {{"step"},
       "SECONDS",
       "time of a training step on one GPU",
       [](C& c, S& n, S& v) { return number(n, v, c.step_seconds); }},
      {{"explain"},
       "",
       "print the reasons",
       [](C& c, S&, S&) { return c.explain = true, Status(); }},
      {{"json"}, "", "print JSON", [](C& c, S&, S&) { return c.json = true, Status(); }},
      {{"help", "h"}, "", "print this help", [](C& c, S&, S&) { return c.help = true, Status(); }},
  };
  return kWords;
}

const Word* find_word(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  for (const Word& word : words_known()) {
    if (std::find(word.names.begin(), word.names.end(), name) != word.names.end()) return &word;
  }
  return nullptr;
}

Status unknown(const std::string& given) {
  std::vector<std::string> names;
  for (const Word& word : words_known()) names.push_back(word.names.front());
  const std::string like = base::nearest(given.substr(given.find_first_not_of('-')), names);
  return invalid_argument(
      fmt::format("place: unknown option {}{}", given,
                  like.empty() ? "" : fmt::format("; did you mean --{}?", like)));
}

using Line = std::vector<std::string>;

std::string words(const std::vector<std::string>& list) {
  return list.empty() ? std::string("-") : fmt::format("{}", fmt::join(list, ","));
}

Line line_of(const topology::Fabric& fabric, const DeviceSlot& slot) {
  const topology::Machine& machine = fabric.machines[fabric.hosts[slot.host].machine];
  std::vector<std::string> gpus, nics;
  for (const std::uint32_t gpu : slot.gpus)
    gpus.push_back(std::to_string(machine.gpus[gpu].number));
  for (const std::uint32_t nic : slot.nics) nics.push_back(machine.nics[nic].name);
  return {words(gpus), words(nics),
          slot.numa == topology::kNoPart ? "-" : std::to_string(machine.numas[slot.numa].number),
          (slot.cpus.empty() ? "-" : topology::ranges(slot.cpus)) +
              (slot.role.empty() ? "" : "  " + slot.role)};
}

// Pads columns to their widest cell.
std::string rank_table(const topology::Fabric& fabric, const JobPlacement& placement) {
  const bool devices = !placement.devices.empty();
  std::vector<Line> lines = {devices ? Line{"rank", "host", "GPU", "NIC", "NUMA", "processors"}
                                     : Line{"rank", "host", "on", "processors"}};
  for (std::size_t rank = 0; rank < placement.slots.size(); ++rank) {
    const Slot& slot = placement.slots[rank];
    Line line = devices
                    ? line_of(fabric, placement.devices[rank])
                    : Line{slot.object, slot.cpus.empty() ? "any" : topology::ranges(slot.cpus)};
    line.insert(line.begin(), {std::to_string(rank), fabric.hosts[placement.hosts[rank]].name});
    lines.push_back(std::move(line));
  }
  std::vector<std::size_t> wide(lines[0].size());
  for (const Line& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) wide[i] = std::max(wide[i], line[i].size());
  }
  std::string out;
  for (const Line& line : lines) {
    std::string text = fmt::format("{:>5}", line[0]);
    for (std::size_t i = 1; i < line.size(); ++i) text += fmt::format("  {:<{}}", line[i], wide[i]);
    out += text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

// For a machine of which only NUMA nodes are known: treats each of their processors as a core.
topology::Topology processors_of(const topology::Machine& machine) {
  topology::Topology out = machine.processors;
  if (!out.threads.empty()) return out;
  out.this_machine = false;
  for (std::uint32_t numa = 0; numa < machine.numas.size(); ++numa) {
    for (const int cpu : machine.numas[numa].cpus) {
      const auto number = static_cast<std::uint32_t>(out.threads.size());
      topology::HwThread& thread = out.threads.emplace_back();
      thread.os = cpu;
      thread.parts = {number,
                      number,
                      topology::kNoPart,
                      topology::kNoPart,
                      topology::kNoPart,
                      numa,
                      machine.numas[numa].package,
                      0};
    }
  }
  return out;
}

// Converts a set of GPU numbers, given by `option`, to a set of indices into the machine's GPUs.
Status gpus_numbered(const PlaceCommand& command, const char* option,
                     const topology::Machine& machine, GpuSet numbers, GpuSet& out) {
  GpuSet there = 0;
  out = 0;
  for (std::size_t i = 0; i < machine.gpus.size() && i < kMostGpus; ++i) {
    const int number = machine.gpus[i].number;
    if (number < 0 || number >= static_cast<int>(kMostGpus)) continue;
    there |= bit_of(static_cast<std::size_t>(number));
    if ((numbers & bit_of(static_cast<std::size_t>(number))) != 0) out |= bit_of(i);
  }
  const GpuSet absent = numbers & ~there;
  if (absent == 0) return {};
  const auto text = [](GpuSet set) {
    std::vector<int> list;
    for (const std::uint32_t one : members_of(set)) list.push_back(static_cast<int>(one));
    return topology::ranges(list);
  };
  return invalid_argument(fmt::format("{}: {} has no GPU {}; it has {}", option, command.machine,
                                      text(absent), text(there)));
}

std::string step_text(const PlaceCommand& command, const JobPlacement& placement) {
  if (command.gradient_bytes <= 0 || command.step_seconds <= 0 || placement.devices.empty())
    return "";
  const auto ranks = command.request.sets * command.request.set.ranks;
  const double seconds =
      predicted_step(placement.predicted, ranks, command.gradient_bytes, command.step_seconds);
  return fmt::format("a step of {:.3f} s on one GPU takes {:.3f} s, {:.2f} times as long\n",
                     command.step_seconds, seconds, seconds / command.step_seconds);
}

}  // namespace

Result<PlaceCommand> parse_place_command(const std::vector<std::string>& words) {
  PlaceCommand out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& given = words[i];
    const std::size_t start = given.find_first_not_of('-');
    if (start == 0 || start > 2)
      return invalid_argument(fmt::format("place: unexpected argument '{}'", given));
    const std::size_t equals = given.find('=');
    const Word* word = find_word(given.substr(start, equals - start));
    if (word == nullptr) return unknown(given);
    const bool flag = *word->value == 0;
    if (flag && equals != std::string::npos)
      return invalid_argument(fmt::format("{} takes no value", given));
    if (!flag && equals == std::string::npos && i + 1 == words.size())
      return invalid_argument(fmt::format("{}: {} is missing", given, word->value));
    const std::string name = given.substr(0, equals);
    const std::string value = flag                          ? ""
                              : equals != std::string::npos ? given.substr(equals + 1)
                                                            : words[++i];
    REGROUP_RETURN_IF_ERROR(word->apply(out, name, value));
  }
  if (!out.help && out.machine.empty()) return invalid_argument("place: --machine FILE is missing");
  REGROUP_RETURN_IF_ERROR(check_ranks(out));
  return out;
}

std::string place_help() {
  std::string out =
      "usage: regroup place --machine FILE -np N [--explain] [OPTIONS]\nShow where the ranks of a "
      "job would "
      "run, and why, on a recorded or synthetic machine.\nGuide: docs/guide/placement.md\n\n";
  for (const Word& word : words_known()) {
    std::string left;
    for (const std::string& name : word.names)
      left += fmt::format("{}{}{}", left.empty() ? "" : ", ",
                          name.size() == 1 || name == "np" ? "-" : "--", name);
    if (*word.value != 0) left += fmt::format(" {}", word.value);
    out += left.size() > 28 ? fmt::format("  {}\n  {:<28}  {}\n", left, "", word.help)
                            : fmt::format("  {:<28}  {}\n", left, word.help);
  }
  return out;
}

Result<JobPlacement> place_command(const PlaceCommand& command, const topology::Fabric& fabric) {
  const bool any_gpu = !fabric.machines.front().gpus.empty();
  if (!any_gpu && command.of_gpus)
    return invalid_argument(
        fmt::format("{}: this machine has no GPU to place ranks on", command.machine));
  const bool by_gpus = any_gpu && command.request.set.gpus > 0;
  GpuSet free = ~GpuSet{0}, keep = 0;
  const topology::Machine& machine = fabric.machines.front();
  if (command.free)
    REGROUP_RETURN_IF_ERROR(gpus_numbered(command, "--free", machine, *command.free, free));
  REGROUP_RETURN_IF_ERROR(gpus_numbered(command, "--keep", machine, command.request.keep, keep));
  std::vector<HostShare> hosts = whole_fabric(fabric);
  topology::Fabric known = fabric;
  for (topology::Machine& machine : known.machines) machine.processors = processors_of(machine);
  for (HostShare& host : hosts) {
    host.free &= free;
    if (!by_gpus)
      host.slots = static_cast<std::uint32_t>(
          topology::parts_of(known.machines[0].processors, spec::Unit::kCore).size());
  }
  JobRequest request;
  request.ranks.mapping = command.mapping;
  request.ranks.counts = {command.request.sets * command.request.set.ranks};
  request.devices = command.request;
  request.devices.keep = keep;
  if (by_gpus) request.gpus = {command.request.set.gpus};
  for (const ServerRole& server : command.request.servers) {
    request.ranks.counts.push_back(server.count);
    request.gpus.push_back(0);
    request.roles = {"", server.name};
  }
  return place_job(known, hosts, request);
}

std::string place_text(const PlaceCommand& command, const topology::Fabric& fabric,
                       const JobPlacement& placement) {
  std::string out;
  for (std::size_t i = 0; command.explain && i < placement.why.size(); ++i)
    out += placement.why[i] + "\n";
  for (std::size_t rank = 0;
       command.explain && placement.devices.empty() && rank < placement.slots.size(); ++rank)
    out += fmt::format("rank {}: {}\n", rank, placement.slots[rank].why);
  out += step_text(command, placement);
  out += rank_table(fabric, placement);
  return out;
}

std::string place_json(const topology::Fabric& fabric, const JobPlacement& placement) {
  using nlohmann::json;
  const auto finite = [](double value) { return std::isinf(value) ? json() : json(value); };
  json ranks = json::array();
  for (std::size_t rank = 0; rank < placement.slots.size(); ++rank) {
    const topology::FabricHost& host = fabric.hosts[placement.hosts[rank]];
    const topology::Machine& machine = fabric.machines[host.machine];
    const Slot& bound = placement.slots[rank];
    const DeviceSlot slot = placement.devices.empty() ? DeviceSlot() : placement.devices[rank];
    json one = {{"host", host.name},     {"on", bound.object},    {"cpus", bound.cpus},
                {"gpus", json::array()}, {"nics", json::array()}, {"why", bound.why}};
    for (const std::uint32_t gpu : slot.gpus) one["gpus"].push_back(machine.gpus[gpu].number);
    for (const std::uint32_t nic : slot.nics) one["nics"].push_back(machine.nics[nic].name);
    if (!slot.gpus.empty()) one["set"] = slot.set;
    if (!slot.role.empty()) one["role"] = slot.role;
    if (slot.numa != topology::kNoPart) one["numa"] = machine.numas[slot.numa].number;
    ranks.push_back(std::move(one));
  }
  json out = {{"why", placement.why}, {"ranks", std::move(ranks)}};
  if (!placement.devices.empty()) {
    out["gbytes"] = finite(placement.predicted.gbytes);
    out["outward_gbytes"] = finite(placement.predicted.outward);
    out["narrow"] = placement.predicted.narrow;
    out["shrink_order"] = placement.shrink_order;
  }
  return out.dump(2) + "\n";
}

}  // namespace regroup::placement
