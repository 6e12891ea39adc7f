// One factor for all limits: a user with a slow file system need not know which of them has
// expired.
#include "launcher/process/time_limit.h"

#include <fmt/format.h>

#include <charconv>
#include <string>

namespace regroup::process {
namespace {

constexpr const char* kName = "REGROUP_TIME_LIMIT_FACTOR";
constexpr double kLeast = 0.01;
constexpr double kMost = 1000;

}  // namespace

base::Result<double> time_limit_factor(const spec::Environment& environment) {
  const auto found = environment.find(kName);
  if (found == environment.end() || found->second.empty()) return 1.0;
  const std::string& text = found->second;
  double factor = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), factor);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (whole && factor >= kLeast && factor <= kMost) return factor;
  return base::invalid_argument(
      fmt::format("{} must be a number from {:g} to {:g}, got \"{}\"", kName, kLeast, kMost, text));
}

base::Duration time_limit(const spec::Environment& environment, base::Duration usual) {
  const auto factor = time_limit_factor(environment);
  return std::chrono::duration_cast<base::Duration>(usual * (factor.ok() ? *factor : 1.0));
}

}  // namespace regroup::process
