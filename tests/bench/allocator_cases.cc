// Times reading what allocators grant: usage allocator_cases SAMPLES. Prints "CASE NANOSECONDS" for
// each sample; each case checks its answer first and ends with 1 where it is wrong.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/alloc/allocators.h"
#include "launcher/spec/hosts.h"

namespace {

using namespace regroup;

constexpr std::size_t kHosts = 10'000;
constexpr std::uint32_t kSlots = 8;

struct Case {
  std::string name;  // of --allocator
  std::string text;  // of its file, or what its command prints
  spec::Environment environment;
};

std::string lines(const std::string& format, std::size_t times = 1) {
  std::string out;
  for (std::size_t i = 0; i < kHosts; ++i) {
    for (std::size_t j = 0; j < times; ++j) out += fmt::format(fmt::runtime(format), i);
  }
  return out;
}

std::vector<Case> cases() {
  const std::string flux =
      R"({"version": 1, "execution": {"R_lite": [{"rank": "0-9999", "children": )"
      R"({"core": "0-7", "gpu": "0-3"}}], "nodelist": ["n[0-9999]"]}})";
  return {
      {"slurm",
       "",
       {{"SLURM_JOB_ID", "1"},
        {"SLURM_JOB_NODELIST", "n[00000-09999]"},
        {"SLURM_TASKS_PER_NODE", "8(x10000)"}}},
      {"slurm, one by one",
       "",
       {{"SLURM_JOB_ID", "1"},
        {"SLURM_JOB_NODELIST", lines("n{},") + "last"},
        {"SLURM_TASKS_PER_NODE", "8(x10001)"}}},
      {"lsf", "", {{"LSB_JOBID", "1"}, {"LSB_MCPU_HOSTS", lines("n{} 8 ")}}},
      {"lsf, host file", lines("n{}\n", kSlots), {{"LSB_JOBID", "1"}, {"LSB_DJOB_HOSTFILE", "f"}}},
      {"pbs", lines("n{}\n", kSlots), {{"PBS_JOBID", "1"}, {"PBS_NODEFILE", "f"}}},
      {"gridengine",
       lines("n{0} 8 all.q@n{0} UNDEFINED\n"),
       {{"JOB_ID", "1"}, {"PE_HOSTFILE", "f"}}},
      {"flux", flux, {{"FLUX_URI", "local:///"}}},
      {"kubernetes",
       lines("w-{}.j.default.svc slots=8\n"),
       {{"KUBERNETES_SERVICE_HOST", "h"}, {"OMPI_MCA_orte_default_hostfile", "f"}}},
      {"host file", lines("n{} slots=8\n"), {}},
      {"discovery script", lines("n{}:8\n"), {}},
  };
}

// The slots that were read.
std::uint64_t read(const Case& each) {
  std::uint64_t slots = 0;
  if (each.name == "host file") {
    const auto hosts = spec::parse_host_file(each.text, "f");
    if (hosts.ok()) {
      for (const auto& host : *hosts) slots += host.slots;
    }
    return slots;
  }
  if (each.name == "discovery script") {
    const auto hosts = alloc::read_discovered(each.text, "f", 1);
    if (hosts.ok()) {
      for (const auto& host : *hosts) slots += host.slots;
    }
    return slots;
  }
  alloc::AllocInput input;
  input.environment = each.environment;
  input.read_file = [&](const std::string& path) -> base::Result<std::string> {
    if (path != "f") return base::not_found(path);
    return each.text;
  };
  input.run = [&](const std::vector<std::string>&) -> base::Result<std::string> {
    return each.text;
  };
  const auto granted = alloc::find_allocation(input, "");
  return granted.ok() ? granted->reading.allocation.slots() : 0;
}

}  // namespace

int main(int argc, char** argv) {
  const int samples = argc > 1 ? std::atoi(argv[1]) : 20;
  for (const Case& each : cases()) {
    const std::uint64_t more = each.name == "slurm, one by one" ? kSlots : 0;
    if (read(each) != kHosts * kSlots + more) {
      fmt::print(stderr, "{}: {} slots were read\n", each.name, read(each));
      return 1;
    }
    for (int i = 0; i < samples; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      const std::uint64_t slots = read(each);
      const auto took = std::chrono::steady_clock::now() - begin;
      if (slots == 0) return 1;
      fmt::print("{}\t{}\n", each.name,
                 std::chrono::duration_cast<std::chrono::nanoseconds>(took).count());
    }
  }
}
