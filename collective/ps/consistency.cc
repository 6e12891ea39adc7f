// Checks of modes, and their texts.
#include "collective/ps/consistency.h"

#include <fmt/format.h>

#include "base/printable.h"

namespace regroup::collective::ps {
namespace {

using base::invalid_argument;

constexpr std::int64_t kMostStaleness = 1'000'000'000;

}  // namespace

const char* name_of(Mode mode) { return mode == Mode::kSsp ? "ssp" : "async"; }

base::Result<Mode> mode_of(std::string_view name) {
  for (const Mode mode : {Mode::kAsync, Mode::kSsp}) {
    if (name == name_of(mode)) return mode;
  }
  return invalid_argument(
      fmt::format("mode \"{}\": expected \"async\" or \"ssp\"", base::escaped(name)));
}

base::Status check(const Consistency& consistency) {
  const auto& staleness = consistency.staleness;
  if (consistency.mode != Mode::kSsp) {
    if (!staleness) return {};
    return invalid_argument(
        fmt::format("staleness={}: staleness is for mode=\"ssp\", got mode=\"{}\"", *staleness,
                    name_of(consistency.mode)));
  }
  if (!staleness)
    return invalid_argument("mode=\"ssp\": expected a staleness, for example staleness=3");
  if (*staleness >= 0 && *staleness <= kMostStaleness) return {};
  return invalid_argument(
      fmt::format("staleness={}: expected 0 to {} clocks", *staleness, kMostStaleness));
}

base::Status check_same(const Consistency& here, const Consistency& there, std::string_view who) {
  if (here == there) return {};
  if (here.mode != there.mode) {
    return invalid_argument(
        fmt::format("mode \"{}\" here, \"{}\" at {}; expected the same in all processes of the job",
                    name_of(here.mode), name_of(there.mode), who));
  }
  return invalid_argument(
      fmt::format("staleness {} here, {} at {}; expected the same in all processes of the job",
                  here.staleness.value_or(0), there.staleness.value_or(0), who));
}

std::uint64_t to_word(const Consistency& consistency) {
  if (consistency.mode != Mode::kSsp) return 0;
  return static_cast<std::uint64_t>(consistency.staleness.value_or(0)) + 1;
}
Consistency from_word(std::uint64_t word) {
  if (word == 0) return {};
  return {Mode::kSsp, static_cast<std::int64_t>(word - 1)};
}

}  // namespace regroup::collective::ps
