// Checks of modes, and their texts.
#include "collective/ps/consistency.h"

#include <fmt/format.h>

#include "base/printable.h"
#include "collective/ps/steps.h"

namespace regroup::collective::ps {
namespace {

using base::invalid_argument;
using base::Status;

constexpr std::int64_t kMostStaleness = 1'000'000'000;
constexpr std::uint64_t kSyncBit = std::uint64_t{1} << 63;  // of a word of mode sync

// Option `name` of mode `its`, in mode `mode`.
Status check_option(const char* name, const std::optional<std::int64_t>& value, Mode its, Mode mode,
                    std::int64_t least, std::int64_t most, const char* unit) {
  if (mode != its) {
    if (!value) return {};
    return invalid_argument(fmt::format("{}={}: {} is for mode=\"{}\", got mode=\"{}\"", name,
                                        *value, name, name_of(its), name_of(mode)));
  }
  if (!value) {
    return invalid_argument(fmt::format("mode=\"{}\": expected {}, for example {}={}",
                                        name_of(mode), unit, name, its == Mode::kSsp ? 3 : 8));
  }
  if (*value >= least && *value <= most) return {};
  return invalid_argument(fmt::format("{}={}: expected {} to {}{}", name, *value, least, most,
                                      its == Mode::kSsp ? " clocks" : " leaves of a step"));
}

}  // namespace

const char* name_of(Mode mode) {
  switch (mode) {
    case Mode::kSsp:
      return "ssp";
    case Mode::kSync:
      return "sync";
    default:
      return "async";
  }
}

base::Result<Mode> mode_of(std::string_view name) {
  for (const Mode mode : {Mode::kAsync, Mode::kSsp, Mode::kSync}) {
    if (name == name_of(mode)) return mode;
  }
  return invalid_argument(
      fmt::format("mode \"{}\": expected \"async\", \"ssp\" or \"sync\"", base::escaped(name)));
}

Status check(const Consistency& consistency) {
  REGROUP_RETURN_IF_ERROR(check_option("staleness", consistency.staleness, Mode::kSsp,
                                       consistency.mode, 0, kMostStaleness, "a staleness"));
  return check_option("leaves", consistency.leaves, Mode::kSync, consistency.mode, 1, kMostLeaves,
                      "a number of leaves");
}

Status check_same(const Consistency& here, const Consistency& there, std::string_view who) {
  if (here == there) return {};
  if (here.mode != there.mode) {
    return invalid_argument(
        fmt::format("mode \"{}\" here, \"{}\" at {}; expected the same in all processes of the job",
                    name_of(here.mode), name_of(there.mode), who));
  }
  const bool is_sync = here.mode == Mode::kSync;
  const auto value = [&](const Consistency& of) {
    return (is_sync ? of.leaves : of.staleness).value_or(0);
  };
  return invalid_argument(
      fmt::format("{} {} here, {} at {}; expected the same in all processes of the job",
                  is_sync ? "leaves" : "staleness", value(here), value(there), who));
}

std::uint64_t to_word(const Consistency& consistency) {
  switch (consistency.mode) {
    case Mode::kSsp:
      return static_cast<std::uint64_t>(consistency.staleness.value_or(0)) + 1;
    case Mode::kSync:
      return kSyncBit | static_cast<std::uint64_t>(consistency.leaves.value_or(0));
    default:
      return 0;
  }
}
Consistency from_word(std::uint64_t word) {
  if (word == 0) return {};
  if ((word & kSyncBit) != 0)
    return {.mode = Mode::kSync, .leaves = static_cast<std::int64_t>(word & ~kSyncBit)};
  return {.mode = Mode::kSsp, .staleness = static_cast<std::int64_t>(word - 1)};
}

}  // namespace regroup::collective::ps
