// `scale_sim AGENTS RADIX JOINERS JOURNAL`: one line of JSON for each change. tests/bench/scale.py.
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <exception>
#include <string_view>

#include "tests/scale/cluster.h"

namespace regroup::scale {
namespace {

std::uint32_t number(std::string_view text) {
  std::uint32_t out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || end != text.data() + text.size())
    throw std::invalid_argument(fmt::format("'{}' is no number", text));
  return out;
}

double peak_gib() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / (1 << 20);
}

void print(const ClusterOptions& options, const Cluster& cluster, const Cost& cost) {
  const auto busy = [](const Traffic& t) { return std::chrono::duration<double>(t.busy).count(); };
  fmt::print(
      R"({{"agents": {}, "radix": {}, "levels": {}, "change": "{}", "seconds": {:.6f}, "depth": {}, )"
      R"("worlds": {}, "members": {}, "coordinator_in": {}, "coordinator_out": {}, "coordinator_busy": {:.6f}, )"
      R"("controller_in": {}, "controller_out": {}, "controller_bytes_out": {}, "controller_busy": {:.6f}, "agent_most": {}, "peak_gib": {:.2f}}})"
      "\n",
      options.agents, options.radix, cluster.levels(), cost.change, cost.seconds, cost.depth,
      cost.worlds, cost.members, cost.coordinator.messages_in, cost.coordinator.messages_out,
      busy(cost.coordinator), cost.controller.messages_in, cost.controller.messages_out,
      cost.controller.bytes_out, busy(cost.controller), cost.most_messages, peak_gib());
  std::fflush(stdout);
}

// Each agent has its arena open.
void raise_open_files() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

int run(int argc, char** argv) {
  if (argc != 5) throw std::invalid_argument("usage: scale_sim AGENTS RADIX JOINERS JOURNAL");
  raise_open_files();
  ClusterOptions options;
  options.agents = number(argv[1]);
  options.radix = number(argv[2]);
  options.joiners = number(argv[3]);
  options.journal = argv[4];
  Cluster cluster(options);
  print(options, cluster, cluster.launch());
  print(options, cluster, cluster.fence());
  print(options, cluster, cluster.lose_member());
  print(options, cluster, cluster.lose_switch(std::min(64U, options.agents / 4)));
  if (options.joiners > 0) print(options, cluster, cluster.join());
  for (const std::string& what : cluster.broken()) fmt::print(stderr, "scale_sim: {}\n", what);
  return cluster.broken().empty() ? 0 : 1;
}

}  // namespace
}  // namespace regroup::scale

int main(int argc, char** argv) {
  try {
    return regroup::scale::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "scale_sim: {}\n", error.what());
    return 2;
  }
}
