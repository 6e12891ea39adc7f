// The check of GPU 0 that members with --health make, so many times: gpu_health COUNT [--json FILE]
// Writes for each what it has found and its milliseconds; the first also loads the kernels. Ends
// with 3 if the GPU could not be checked.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "elastic/device_health.h"

int main(int argc, char** argv) {
  using Clock = std::chrono::steady_clock;
  if (argc != 2 && (argc != 4 || std::string(argv[2]) != "--json")) {
    fmt::print(stderr, "usage: gpu_health COUNT [--json FILE]\n");
    return 2;
  }
  nlohmann::json rows = nlohmann::json::array();
  for (int i = std::atoi(argv[1]); i > 0; --i) {
    const auto began = Clock::now();
    const auto found =
        regroup::elastic::check_device(0, nullptr, nullptr, std::chrono::seconds(30));
    const std::chrono::duration<double, std::milli> took = Clock::now() - began;
    if (!found) {
      fmt::print(stderr, "gpu_health: the GPU cannot be checked\n");
      return 3;
    }
    rows.push_back({{"gpu", found->gpu},
                    {"chip", found->chip},
                    {"faults", found->faults},
                    {"ms", took.count()}});
  }
  fmt::print("{}\n", rows.dump());
  if (argc == 4) std::ofstream(argv[3]) << rows.dump() << '\n';
  return 0;
}
