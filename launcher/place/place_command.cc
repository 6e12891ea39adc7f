// The table of its options, and its two outputs.
#include "launcher/place/place_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "launcher/options/mapping.h"
#include "launcher/options/nearest.h"
#include "launcher/options/values.h"

namespace regroup::launcher {
namespace {

using core::invalid_argument;
using core::Result;
using core::Status;

struct Word {
  std::vector<std::string> names;
  const char* value;  // "": a flag
  const char* help;
  Status (*apply)(PlaceCommand& command, const std::string& name, const std::string& value);
};

Status count(const std::string& name, const std::string& text, std::uint32_t least, std::uint32_t& out) {
  return parse_count(name, text, least, out);
}

Status packing(PlaceCommand& command, const std::string& name, const std::string& text) {
  const Status status = parse_packing(text, command.request.packing);
  return status.ok() ? status : bad_value(name, text, status.message());
}

Status gpu_numbers(const std::string& name, const std::string& text, GpuSet& out) {
  std::vector<std::uint32_t> numbers;
  if (Status status = parse_cpu_list(text, numbers); !status.ok())
    return bad_value(name, text, "no list of GPUs, for example 0,2-5");
  out = 0;
  for (const std::uint32_t number : numbers) {
    if (number >= kMostGpus)
      return bad_value(name, text, fmt::format("GPU {} is above {}", number, kMostGpus - 1));
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
  return good ? Status() : bad_value(name, text, "no positive number");
}

Status map_by(PlaceCommand& command, const std::string& name, const std::string& text) {
  constexpr std::string_view kDevice = "device=";
  if (!text.starts_with(kDevice) || text.size() == kDevice.size())
    return bad_value(name, text, "device=NAME is wanted: gpu, nic, or a NIC or GPU such as mlx5_0, gpu3");
  return command.request.device = text.substr(kDevice.size()), Status();
}

using C = PlaceCommand;
using S = const std::string;

const std::vector<Word>& words_known() {
  static const std::vector<Word> kWords = {
      {{"machine"},
       "FILE",
       "the machine: a recorded or a made-up one",
       [](C& c, S&, S& v) { return c.machine = v, Status(); }},
      {{"fabric"},
       "FILE",
       "the network between such machines: topology.conf of Slurm, nodes of Kubernetes, or YAML",
       [](C& c, S&, S& v) { return c.fabric = v, Status(); }},
      {{"hosts"},
       "N",
       "so many such machines on one switch (default: 1)",
       [](C& c, S& n, S& v) { return count(n, v, 1, c.hosts); }},
      {{"np", "n", "nrs"},
       "N",
       "ranks, or resource sets",
       [](C& c, S& n, S& v) { return count(n, v, 1, c.request.sets); }},
      {{"tasks-per-rs", "a"},
       "N",
       "ranks of a resource set (default: 1)",
       [](C& c, S& n, S& v) { return count(n, v, 1, c.request.set.ranks); }},
      {{"gpu-per-rs", "g"},
       "N",
       "GPUs of a resource set (default: 1)",
       [](C& c, S& n, S& v) { return count(n, v, 1, c.request.set.gpus); }},
      {{"cpu-per-rs", "c"},
       "N",
       "cores of a resource set (default: its share)",
       [](C& c, S& n, S& v) { return count(n, v, 1, c.request.set.cpus); }},
      {{"rs-per-host", "r"},
       "N",
       "most resource sets on a host",
       [](C& c, S& n, S& v) { return count(n, v, 1, c.request.sets_per_host); }},
      {{"min"},
       "N",
       "an elastic job may be left with so many: which are given up first",
       [](C& c, S& n, S& v) { return count(n, v, 1, c.request.min_sets); }},
      {{"placement"},
       "best|pack|spread|any",
       "fastest rings (default), fewest hosts, most hosts, or what others miss least",
       packing},
      {{"map-by"},
       "device=NAME",
       "near a NIC or GPU; device=nic: neighbours in rank at different NICs",
       map_by},
      {{"label"},
       "NAME",
       "only GPUs of this label or product",
       [](C& c, S&, S& v) { return c.request.label = v, Status(); }},
      {{"free"},
       "GPUS",
       "others have the rest, 0,2-5 (default: all are free)",
       [](C& c, S& n, S& v) { return c.free.emplace(), gpu_numbers(n, v, *c.free); }},
      {{"keep"},
       "GPUS",
       "these must be among them",
       [](C& c, S& n, S& v) { return gpu_numbers(n, v, c.request.keep); }},
      {{"ps"},
       "N",
       "parameter servers beside the ranks, without GPUs",
       [](C& c, S& n, S& v) {
         return c.request.hubs = {{"ps", 0}}, count(n, v, 1, c.request.hubs[0].count);
       }},
      {{"gradient"},
       "BYTES",
       "of a training step, to predict its time",
       [](C& c, S& n, S& v) { return number(n, v, c.gradient_bytes); }},
      {{"step"},
       "SECONDS",
       "that such a step takes on one GPU",
       [](C& c, S& n, S& v) { return number(n, v, c.step_seconds); }},
      {{"explain"}, "", "say why", [](C& c, S&, S&) { return c.explain = true, Status(); }},
      {{"json"}, "", "as JSON", [](C& c, S&, S&) { return c.json = true, Status(); }},
      {{"help", "h"}, "", "this text", [](C& c, S&, S&) { return c.help = true, Status(); }},
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
  const std::string like = nearest(given.substr(given.find_first_not_of('-')), names);
  return invalid_argument(fmt::format("regroup place: what is {}?{}", given,
                                      like.empty() ? "" : fmt::format(" Did you mean --{}?", like)));
}

struct RankLine {
  std::string host, gpus, nics, numa, cpus;
};

RankLine line_of(const Fabric& fabric, const DeviceSpot& spot) {
  const FabricHost& host = fabric.hosts[spot.host];
  const Machine& machine = fabric.machines[host.machine];
  std::vector<std::string> gpus, nics;
  for (const std::uint32_t gpu : spot.gpus) gpus.push_back(std::to_string(machine.gpus[gpu].number));
  for (const std::uint32_t nic : spot.nics) nics.push_back(machine.nics[nic].name);
  const auto list = [](const std::vector<std::string>& words) {
    return words.empty() ? std::string("-") : fmt::format("{}", fmt::join(words, ","));
  };
  return {host.name, list(gpus), list(nics),
          spot.numa == kNoPart ? "-" : std::to_string(machine.numas[spot.numa].number),
          (spot.cpus.empty() ? "-" : ranges(spot.cpus)) + (spot.role.empty() ? "" : "  " + spot.role)};
}

// As wide as what stands in them.
std::string rank_table(const Fabric& fabric, const std::vector<DeviceSpot>& ranks) {
  std::vector<RankLine> lines = {{"host", "GPU", "NIC", "NUMA", "processors"}};
  for (const DeviceSpot& spot : ranks) lines.push_back(line_of(fabric, spot));
  std::size_t host = 0, gpus = 0, nics = 0;
  for (const RankLine& line : lines) {
    host = std::max(host, line.host.size());
    gpus = std::max(gpus, line.gpus.size());
    nics = std::max(nics, line.nics.size());
  }
  std::string out;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const RankLine& line = lines[i];
    out += fmt::format("{:>5}  {:<{}}  {:<{}}  {:<{}}  {:>4}  {}\n", i == 0 ? "rank" : std::to_string(i - 1),
                       line.host, host, line.gpus, gpus, line.nics, nics, line.numa, line.cpus);
  }
  return out;
}

std::string step_text(const PlaceCommand& command, const DevicePlacement& placement) {
  if (command.gradient_bytes <= 0 || command.step_seconds <= 0) return "";
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
    if (start == 0 || start > 2) return invalid_argument(fmt::format("regroup place: what is {}?", given));
    const std::size_t equals = given.find('=');
    const Word* word = find_word(given.substr(start, equals - start));
    if (word == nullptr) return unknown(given);
    const bool flag = *word->value == 0;
    if (flag && equals != std::string::npos) return invalid_argument(fmt::format("{} takes no value", given));
    if (!flag && equals == std::string::npos && i + 1 == words.size())
      return invalid_argument(fmt::format("{}: {} is missing", given, word->value));
    const std::string name = given.substr(0, equals);
    const std::string value = flag ? "" : equals != std::string::npos ? given.substr(equals + 1) : words[++i];
    REGROUP_RETURN_IF_ERROR(word->apply(out, name, value));
  }
  if (!out.help && out.machine.empty()) return invalid_argument("regroup place: --machine FILE is missing");
  return out;
}

std::string place_help() {
  std::string out =
      "usage: regroup place --machine FILE -np N [--explain] [OPTIONS]\n"
      "Where ranks would go on a machine, without it: docs/placement.md\n\n";
  for (const Word& word : words_known()) {
    std::string left;
    for (const std::string& name : word.names)
      left += fmt::format("{}{}{}", left.empty() ? "" : ", ", name.size() == 1 || name == "np" ? "-" : "--",
                          name);
    if (*word.value != 0) left += fmt::format(" {}", word.value);
    out += left.size() > 28 ? fmt::format("  {}\n  {:<28}  {}\n", left, "", word.help)
                            : fmt::format("  {:<28}  {}\n", left, word.help);
  }
  return out;
}

std::string place_text(const PlaceCommand& command, const Fabric& fabric, const DevicePlacement& placement) {
  std::string out;
  if (command.explain) {
    for (const std::string& sentence : placement.why) out += sentence + "\n";
  }
  out += step_text(command, placement);
  out += rank_table(fabric, placement.ranks);
  return out;
}

std::string place_json(const Fabric& fabric, const DevicePlacement& placement) {
  using nlohmann::json;
  const auto finite = [](double value) { return std::isinf(value) ? json() : json(value); };
  json ranks = json::array();
  for (const DeviceSpot& spot : placement.ranks) {
    const FabricHost& host = fabric.hosts[spot.host];
    const Machine& machine = fabric.machines[host.machine];
    json one = {{"host", host.name},
                {"cpus", spot.cpus},
                {"gpus", json::array()},
                {"nics", json::array()},
                {"why", spot.why}};
    for (const std::uint32_t gpu : spot.gpus) one["gpus"].push_back(machine.gpus[gpu].number);
    for (const std::uint32_t nic : spot.nics) one["nics"].push_back(machine.nics[nic].name);
    if (spot.set != kNoPart) one["set"] = spot.set;
    if (!spot.role.empty()) one["role"] = spot.role;
    if (spot.numa != kNoPart) one["numa"] = machine.numas[spot.numa].number;
    ranks.push_back(std::move(one));
  }
  const json out = {{"gbytes", finite(placement.predicted.gbytes)},
                    {"outward_gbytes", finite(placement.predicted.outward)},
                    {"narrow", placement.predicted.narrow},
                    {"give_up", placement.give_up},
                    {"why", placement.why},
                    {"ranks", std::move(ranks)}};
  return out.dump(2) + "\n";
}

}  // namespace regroup::launcher
