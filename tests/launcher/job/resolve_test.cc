// From command lines and inventories to jobs: what runs where, and with which exit status a job is
// refused. Nothing of the machine on which the test runs counts.
#include "launcher/job/resolve.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <sstream>

#include "launcher/cli/parse.h"
#include "launcher/topology/read_topology.h"

namespace regroup::job {
namespace {

using testing::HasSubstr;

spec::JobSpec parsed(const std::string& line) {
  std::istringstream in(line);
  const std::vector<std::string> words{std::istream_iterator<std::string>(in), {}};
  cli::ParseContext context;
  context.read_file = [](const std::string& path) {
    return path == "hosts" ? base::Result<std::string>("a slots=2\nb slots=2\n")
                           : base::Result<std::string>(base::not_found(path));
  };
  auto command = cli::parse_command_line(words, context);
  EXPECT_TRUE(command.ok()) << line << ": " << command.status().message();
  return command.ok() ? command->job : spec::JobSpec();
}

placement::HostInventory machine(const std::string& synthetic) {
  placement::HostInventory out;
  auto read = topology::synthetic_topology(synthetic);
  EXPECT_TRUE(read.ok()) << read.status().message();
  out.machine.processors = *read;
  for (const topology::HwThread& thread : read->threads) out.cpus.push_back(thread.os);
  return out;
}

constexpr const char* kTwoPackages = "package:2 [numa] core:2 pu:1";

Inventory::Program found(const spec::AppRequest& app) {
  return process::App{
      "/bin/" + app.command.at(0), app.command, app.environment, "", app.role, app.limits};
}

// This host with 4 cores, or the hosts of the options, each with 4; the first is this one.
Inventory inventory(const spec::JobSpec& spec, bool with_machines = true) {
  Inventory out;
  std::vector<std::string> names{"here"};
  if (spec.several_hosts()) {
    out.here = "here";
    names.clear();
    for (const spec::HostRequest& host : spec.hosts) names.push_back(host.name);
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::uint32_t said = spec.several_hosts() ? spec.hosts[i].slots : 0;
    out.allocation.hosts.push_back({names[i], said != 0 ? said : 4, {}});
    out.cores.push_back(4);
    placement::ClusterHost host{names[i], spec.several_hosts() ? (said != 0 ? said : 4) : 0, 0,
                                placement::HostInventory()};
    if (with_machines) host.inventory = machine(kTwoPackages);
    out.hosts.push_back(std::move(host));
  }
  for (const spec::AppRequest& app : spec.apps) out.programs.push_back(found(app));
  return out;
}

// "MIN:MAX of S slots start N shards V | host: ranks, ... | cpus of each rank", or "STATUS: why".
std::string shown(const std::variant<ResolvedJob, Refusal>& resolved) {
  if (const auto* refusal = std::get_if<Refusal>(&resolved))
    return fmt::format("{}: {}", refusal->exit_status, refusal->message);
  const auto& job = std::get<ResolvedJob>(resolved);
  std::string out = fmt::format("{}:{} start {} of {} slots, V {}", job.members.min,
                                job.members.max, job.members.start, job.slots, job.members.shards);
  if (!job.counts.empty())
    out += fmt::format(" | {} on {}", fmt::join(job.counts, "+"), fmt::join(job.host_of, ","));
  for (const std::vector<int>& cores : job.placed.cores())
    out += fmt::format(" [{}]", fmt::join(cores, ","));
  return out;
}

std::string resolved(const std::string& line) {
  const spec::JobSpec spec = parsed(line);
  return shown(resolve(spec, inventory(spec)));
}

TEST(Resolve, CountsPlacesAndBindsMembers) {
  struct Row {
    const char* line;
    const char* job;
  };
  const Row rows[] = {
      {"-np 2 p", "2:2 start 2 of 4 slots, V 2 | 2 on 0,0 [0] [1]"},
      {"--bind-to none p", "4:4 start 4 of 4 slots, V 4 | 4 on 0,0,0,0"},
      {"--map-by package -np 2 p", "2:2 start 2 of 4 slots, V 2 | 2 on 0,0 [0,1] [2,3]"},
      {"--map-by ppr:1:package p", "2:2 start 2 of 4 slots, V 2 | 2 on 0,0 [0,1] [2,3]"},
      {"-np 1 a : -np 2 b", "3:3 start 3 of 4 slots, V 4 | 1+2 on 0,0,0 [0] [1] [2]"},
      {"-np 1:3 p", "1:3 start 3 of 4 slots, V 4 | 3 on 0,0,0"},
      {"-np 1:8 p", "1:8 start 4 of 4 slots, V 8 | 4 on 0,0,0,0"},
      {"-np 1:8 --oversubscribe --initial-size 2 p",
       "1:8 start 2 of 4 slots, V 8 | 8 on "
       "0,0,0,0,0,0,0,0"},
      {"-np 2:4 --bind-to core p", "2:4 start 4 of 4 slots, V 4 | 4 on 0,0,0,0 [0] [1] [2] [3]"},
      {"-np 3 -H here,other:2 --launcher fork --bind-to none p",
       "3:3 start 3 of 3 slots, V 4 | 3 on 1,2,2"},
      {"-np 2 -H localhost:1,b:1 --launcher fork --bind-to none p",
       "2:2 start 2 of 2 slots, V 2 | 2 on 0,1"},
      {"--map-by :PE=2 p", "2:2 start 2 of 4 slots, V 2 | 2 on 0,0 [0,1] [2,3]"},
      {"-H a:1,b:1 --launcher fork --map-by slot:PE=2 p",
       "2:2 start 2 of 2 slots, V 2 | 2 on 1,2 [0,1] [0,1]"},
      {"-np 2 -H localhost:4,b:1 --launcher fork --cpu-set 1 p",
       "2:2 start 2 of 5 slots, V 2 | 2 on 0,1 [1] [1]"},
      // A program without -H has the order of the file.
      {"--hostfile hosts --launcher fork --bind-to none -np 1 p : -H b:2,a:2 -np 1 q",
       "2:2 start 2 of 4 slots, V 2 | 1+1 on 1,2"},
      {"-np 2 -H a:1,b:1 --launcher fork --bind-to core p",
       "2:2 start 2 of 2 slots, V 2 | 2 on 1,2 [0] [0]"},
  };
  for (const Row& row : rows) EXPECT_EQ(resolved(row.line), row.job) << row.line;
}

TEST(Resolve, RefusesWithTheStatusOfTheDialect) {
  EXPECT_THAT(resolved("-np 5 p"), HasSubstr("1: 5 members requested, 4 slots"));
  EXPECT_THAT(resolved("--compat=mpich -np 2 --bind-to l3cache p"), HasSubstr("255: "));
  EXPECT_THAT(resolved("-np 2 --bind-to l3cache p"), HasSubstr("213: "));
  const std::string full = "-H a:3 --launcher fork --bind-to none -np 1 p : -H b -np 2 p";
  EXPECT_THAT(resolved(full), HasSubstr("1: 2 members requested; 1 slot available on 1 host"));
  EXPECT_THAT(resolved("-np 2 --stdin 2 p"), HasSubstr("1: --stdin 2: expected a rank"));
}

TEST(Resolve, AMissingProgramComesBeforeMembersThatCannotBePlaced) {
  const spec::JobSpec spec = parsed("-np 2 --bind-to l3cache p");
  Inventory there = inventory(spec);
  there.programs = {Refusal{66, "p: not found in PATH"}};
  EXPECT_EQ(shown(resolve(spec, there)), "66: p: not found in PATH");
  const spec::JobSpec more = parsed("-np 5 p");
  there = inventory(more);
  there.programs = {Refusal{66, "p: not found in PATH"}};
  EXPECT_THAT(shown(resolve(more, there)), HasSubstr("1: 5 members requested"));
}

TEST(Resolve, TellsWhatItIgnoresAlsoWhereItRefuses) {
  const spec::JobSpec spec = parsed("-np 2 --bind-to l3cache --max-restarts 2 p");
  const auto got = resolve(spec, inventory(spec));
  ASSERT_TRUE(std::holds_alternative<Refusal>(got));
  EXPECT_THAT(std::get<Refusal>(got).notes, HasSubstr("--max-restarts: ignored"));
}

TEST(Resolve, LeavesPlacesOpenWhereHostsComeLater) {
  const spec::JobSpec spec = parsed("-np 2:100 -H a:2,b:2 --launcher fork p");
  Inventory later;
  later.programs = {found(spec.apps.at(0))};
  const auto got = resolve(spec, later);
  ASSERT_TRUE(std::holds_alternative<ResolvedJob>(got)) << shown(got);
  const auto& job = std::get<ResolvedJob>(got);
  EXPECT_EQ(job.members.min, 2U);
  EXPECT_EQ(job.members.max, 100U);
  EXPECT_EQ(job.apps.size(), 1U);
  EXPECT_TRUE(job.counts.empty());
  EXPECT_TRUE(job.hosts.empty());
}

TEST(Resolve, GivesStandardInputToTheHostOfItsRank) {
  const spec::JobSpec spec = parsed("-np 2 -H a:1,b:1 --launcher fork --stdin 1 p");
  const auto got = resolve(spec, inventory(spec));
  ASSERT_TRUE(std::holds_alternative<ResolvedJob>(got)) << shown(got);
  const auto& job = std::get<ResolvedJob>(got);
  EXPECT_EQ(job.hosts.size(), 3U);  // this one has no rank
  EXPECT_FALSE(job.reads_input(spec.stdin_to, 0));
  EXPECT_FALSE(job.reads_input(spec.stdin_to, 1));
  EXPECT_TRUE(job.reads_input(spec.stdin_to, 2));
  EXPECT_TRUE(job.reads_input({.to = spec::StdinRequest::To::kAll}, 1));
  EXPECT_FALSE(job.reads_input({.to = spec::StdinRequest::To::kAll}, 0));
}

// torchrun's --virtual-local-rank.
std::string devices_of(const std::string& line) {
  const auto resolved = resolve(parsed(line), inventory(parsed(line)));
  if (const auto* refusal = std::get_if<Refusal>(&resolved)) return refusal->message;
  std::string out;
  for (const spec::Environment& rank : std::get<ResolvedJob>(resolved).placed.environments)
    out += fmt::format("{}:{} ", rank.at("LOCAL_RANK"), rank.at("CUDA_VISIBLE_DEVICES"));
  return out;
}

TEST(Resolve, AVirtualLocalRankSeesOneDeviceOfItsHost) {
  const std::string line = "--virtual-local-rank --bind-to none ";
  EXPECT_EQ(devices_of(line + "-np 2 p"), "0:0 0:1 ");
  EXPECT_EQ(devices_of(line + "-np 1:2 p"), "0:0 0:1 ");
  EXPECT_EQ(devices_of(line + "-np 4 -H here:2,b:2 --launcher fork p"), "0:0 0:1 0:0 0:1 ");
  EXPECT_EQ(devices_of(line + "-np 2 -x CUDA_VISIBLE_DEVICES=GPU-a,4 p"), "0:GPU-a 0:4 ");
  EXPECT_EQ(devices_of(line + "-np 2 -x CUDA_VISIBLE_DEVICES=7 p"),
            "--virtual-local-rank: local rank 1 needs a device of its own, CUDA_VISIBLE_DEVICES=7 "
            "has 1");
}

TEST(ResolveHost, BindsAsManyMembersAsTheHostHasSlots) {
  const spec::JobSpec spec = parsed("-np 2:8 -H a,b --launcher fork --bind-to core p");
  const auto got = resolve_host(spec, spec.hosts.at(0), 2, machine(kTwoPackages));
  ASSERT_TRUE(got.ok()) << got.status().message();
  EXPECT_EQ(got->cores(), (std::vector<std::vector<int>>{{0}, {1}}));
  const spec::JobSpec l3 = parsed("-np 2:8 -H a,b --launcher fork --bind-to l3cache p");
  const auto refused = resolve_host(l3, l3.hosts.at(0), 2, machine(kTwoPackages));
  EXPECT_THAT(refused.status().message(), HasSubstr("host a: "));
}

}  // namespace
}  // namespace regroup::job
