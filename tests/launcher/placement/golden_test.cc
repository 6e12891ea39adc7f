// The answers of the real mpirun 5.0.11 on recorded and synthetic machines
// (tests/golden/placement/record.py), and where we mean to differ from it.
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <sstream>

#include "base/status.h"
#include "launcher/cli/parse.h"
#include "launcher/placement/job_place.h"
#include "launcher/topology/read_topology.h"

namespace regroup::placement {
namespace {

const std::string kFolder = "tests/golden/placement/";

base::Result<std::string> file_text(const std::string& path) {
  std::ifstream file(path);
  std::stringstream out;
  out << file.rdbuf();
  if (!file) return base::system_error("open", path, errno);
  return out.str();
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line);
  return {std::istream_iterator<std::string>(in), {}};
}

topology::Topology machine(const std::string& name) {
  auto text = file_text(kFolder + name + ".xml");
  auto read = text.ok() ? topology::parse_hwloc_xml(*text)
                        : base::Result<topology::Topology>(text.status());
  EXPECT_TRUE(read.ok()) << name << ": " << read.status().message();
  return read.ok() ? *read : topology::Topology();
}

// As record.py writes it: "package[0][core:L0] | UNBOUND", or "error: why".
std::string placed(const topology::Topology& topology, const std::string& line) {
  std::vector<std::string> args = words_of(line);
  if (args.back() != "true") args.emplace_back("true");
  cli::ParseContext context;
  context.read_file = [](const std::string& path) { return file_text(kFolder + path); };
  const auto command = cli::parse_command_line(args, context);
  if (!command.ok()) return "error: " + command.status().message();
  const spec::JobSpec& spec = command->job;
  std::vector<std::uint32_t> counts;
  for (const spec::AppRequest& app : spec.apps)
    counts.push_back(app.count.value_or(members_of_ppr(topology, spec.mapping)));
  topology::Machine only;
  only.processors = topology;
  JobRequest request;
  request.ranks = {spec.mapping, spec.compat, counts, spec.oversubscribe};
  auto placement = place_job(topology::flat_fabric(only, {"here"}), {{0, 0, {}}}, request);
  if (!placement.ok()) return "error: " + placement.status().message();
  std::vector<std::string> out;
  for (const Slot& slot : placement->slots) {
    out.push_back(binding_text(topology, slot.threads, placement->policy.hwthreads));
  }
  return fmt::format("{}", fmt::join(out, " | "));
}

struct Case {
  std::string machine, line, answer;
};

std::vector<Case> recorded_cases() {
  std::vector<Case> out;
  std::ifstream file(kFolder + "mpirun5.txt");
  std::string line, machine;
  while (std::getline(file, line)) {
    if (line.starts_with("machine ")) machine = line.substr(8);
    if (!line.starts_with("> ")) continue;
    Case next{machine, line.substr(2), ""};
    std::getline(file, next.answer);
    out.push_back(next);
  }
  return out;
}

// Where we mean to differ from mpirun, and our answer on the machine `packages`.
const std::map<std::string, std::string>& better() {
  static const std::map<std::string, std::string> kBetter = {
      // mpirun starts more than were asked for.
      {"-np 3 --map-by ppr:2:package --bind-to core",
       "package[0][core:L0] | package[0][core:L1] | package[1][core:L4]"},
      // mpirun refuses to bind to hardware threads unless they are slots.
      {"-np 4 --bind-to hwthread",
       "package[0][hwt:L0] | package[0][hwt:L1] | package[0][hwt:L2] | package[0][hwt:L3]"},
      {"-np 4 --map-by core --bind-to hwthread",
       "package[0][hwt:L0] | package[0][hwt:L2] | package[0][hwt:L4] | package[0][hwt:L6]"},
      {"-np 2 --map-by package:PE=2 --bind-to hwthread",
       "package[0][hwt:L0-1] | package[1][hwt:L8-9]"},
      // mpirun refuses lists that reach over two packages, and ranges.
      {"-np 2 --map-by pe-list=0,2,4,6",
       "package[0][core:L0,2] package[1][core:L4,6] | package[0][core:L0,2] package[1][core:L4,6]"},
      {"-np 2 --map-by pe-list=0,2,4,6 --bind-to core",
       "package[0][core:L0,2] package[1][core:L4,6] | package[0][core:L0,2] package[1][core:L4,6]"},
      {"-np 4 --map-by pe-list=0,2,4,6",
       "package[0][core:L0,2] package[1][core:L4,6] | package[0][core:L0,2] package[1][core:L4,6] "
       "| "
       "package[0][core:L0,2] package[1][core:L4,6] | package[0][core:L0,2] package[1][core:L4,6]"},
      {"-np 2 --map-by pe-list=1-3", "package[0][core:L1-3] | package[0][core:L1-3]"},
      {"-np 2 --map-by pe-list=1,3", "package[0][core:L1,3] | package[0][core:L1,3]"},
      {"-np 2 --use-hwthread-cpus --map-by pe-list=1,3",
       "package[0][hwt:L1,3] | package[0][hwt:L1,3]"},
      // mpirun 5 does not combine a set with a mapping; 4 did.
      {"-np 2 --cpu-set 4-6 --map-by package --bind-to core",
       "package[1][core:L4] | package[1][core:L5]"},
      {"-np 2 --cpu-set 0-3 --map-by core", "package[0][core:L0] | package[0][core:L1]"},
      // More slots than cores: we start them unbound, mpirun fails though nobody asked for a
      // binding.
      {"-H localhost:12 -np 12",
       "UNBOUND | UNBOUND | UNBOUND | UNBOUND | UNBOUND | UNBOUND | UNBOUND | UNBOUND | UNBOUND | "
       "UNBOUND | "
       "UNBOUND | UNBOUND"},
      {"-H localhost:12 -np 12 --map-by package",
       "UNBOUND | UNBOUND | UNBOUND | UNBOUND | UNBOUND | UNBOUND | UNBOUND | UNBOUND | UNBOUND | "
       "UNBOUND | "
       "UNBOUND | UNBOUND"},
      // mpirun replaces a core that does not exist by another one.
      {"-np 2 --map-by rankfile:file=ranks3 --use-hwthread-cpus",
       "package[1][hwt:L10-13] | package[0][hwt:L3]"},
      // mpirun leaves an object with too few free cores to a later program. We fill from the first
      // for each.
      {"--map-by ppr:2:package -np 2 true : -np 2 true",
       "package[0][core:L0-3] | package[0][core:L0-3] | package[0][core:L0-3] | "
       "package[0][core:L0-3]"}};
  return kBetter;
}

TEST(PlaceGolden, PlacesAsMpirun5Does) {
  std::map<std::string, topology::Topology> machines;
  const std::vector<Case> cases = recorded_cases();
  ASSERT_GT(cases.size(), 100U);
  for (const Case& one : cases) {
    if (better().contains(one.line)) continue;
    if (!machines.contains(one.machine)) machines[one.machine] = machine(one.machine);
    const std::string ours = placed(machines[one.machine], one.line);
    if (one.answer.starts_with("error: ") && ours.starts_with("error: ")) continue;
    EXPECT_EQ(ours, one.answer) << one.machine << ": " << one.line;
  }
}

TEST(PlaceGolden, ListsEveryDifferenceFromMpirun5) {
  const topology::Topology packages = machine("packages");
  for (const auto& [line, answer] : better()) EXPECT_EQ(placed(packages, line), answer) << line;
}

}  // namespace
}  // namespace regroup::placement
