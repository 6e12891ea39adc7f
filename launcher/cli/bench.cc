// Passes the place in the job as arguments and removes its variables, because regroup-bench starts
// other launchers, which must not act as a part of this job. The job's name stays: the reaper finds
// processes by it.
#include "launcher/cli/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/printable.h"
#include "launcher/cli/helper.h"
#include "launcher/spec/outer_place.h"

namespace regroup::cli {
namespace {

constexpr std::array<std::string_view, 5> kOfMpi = {"OMPI_", "OPAL_", "PMIX_", "PRTE_", "PMI_"};

std::string value_of(const spec::Environment& environment, const std::string& name,
                     const std::string& otherwise) {
  const auto found = environment.find(name);
  return found == environment.end() || found->second.empty() ? otherwise : found->second;
}

spec::Environment for_bench(const spec::Environment& environment) {
  spec::Environment out = spec::without_outer_place(environment);
  std::erase_if(out, [](const auto& entry) {
    return std::ranges::any_of(
        kOfMpi, [&](std::string_view prefix) { return entry.first.starts_with(prefix); });
  });
  if (const auto job = environment.find("REGROUP_JOB"); job != environment.end()) out.insert(*job);
  return out;
}

int cannot_measure(const std::string& why) {
  fmt::print(stderr, "regroup bench: {}\n", base::escaped_lines(why));
  return 1;
}

}  // namespace

int run_bench(const CommandLine& command) {
  const spec::Environment& around = command.environment;
  const bool fixed = around.contains("REGROUP_JOB") && !around.contains("REGROUP_AGENT");
  if (around.contains("REGROUP_AGENT"))
    return cannot_measure("requires a job of -np N, got -np MIN:MAX");
  std::vector<std::string> words = {"-1", "0", "0", "-"};
  if (fixed) {
    words = {value_of(around, "RANK", "-1"), value_of(around, "WORLD_SIZE", "0"),
             value_of(around, "LOCAL_WORLD_SIZE", "0"), value_of(around, "REGROUP_JOB", "-")};
  }
  words.insert(words.end(), command.words.begin(), command.words.end());
  return become_helper("bench", std::move(words), for_bench(around));
}

}  // namespace regroup::cli
