// What the benches of the parameter server share: ids by Zipf's law, and clocks.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <utility>

#include "base/status.h"

namespace regroup::collective::ps {

[[noreturn]] inline void fail(const std::string& why) {
  fmt::print(stderr, "bench of the parameter server: {}\n", why);
  std::exit(1);
}
inline void must(const base::Status& status) {
  if (!status.ok()) fail(status.to_string());
}
template <class T>
T must(base::Result<T> result) {
  must(result.status());
  return std::move(result).value();
}

// Ranks by Zipf's law with exponent 1.05 over 10M ids, by rejection from its integral (Devroye,
// chapter X.6).
class Zipf {
 public:
  std::uint64_t operator()() {
    constexpr double kExponent = 1.05;
    constexpr double kIds = 10e6;
    const double base = std::pow(kIds, 1 - kExponent);
    while (true) {
      const double u = uniform_(random_), v = uniform_(random_);
      const double x = std::pow(1 - u * (1 - base), 1 / (1 - kExponent));
      const double rank = std::floor(x);
      if (v <= std::pow(rank / x, kExponent)) return static_cast<std::uint64_t>(rank) - 1;
    }
  }

 private:
  std::mt19937_64 random_{1};
  std::uniform_real_distribution<double> uniform_{0, 1};
};

// Prints "CASE<tab>NANOSECONDS".
template <class Run>
void timed(const char* name, Run run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  const auto spent = std::chrono::steady_clock::now() - begin;
  fmt::print("{}\t{}\n", name, std::chrono::nanoseconds(spent).count());
}

}  // namespace regroup::collective::ps
