// Bytes / measured bandwidth against the deadline.
#include "launcher/cmd/last_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>

namespace regroup::cmd {
namespace {

constexpr double kMiB = 1 << 20;
constexpr double kMargin = 1.2;  // disks are not always as fast as before

double seconds(core::Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

LastChoice choose_last(const Remaining& r) {
  using What = LastChoice::What;
  const double left = seconds(r.left);
  const What wanted = r.writing ? What::kFinish : What::kPersist;
  const std::string what = r.writing
                               ? fmt::format("the checkpoint of step {} that is being written", *r.writing)
                               : "a last snapshot";
  const std::string mib = fmt::format("{:.0f} MiB", static_cast<double>(r.bytes) / kMiB);
  if (left <= 0) return {What::kKeep, fmt::format("no time is left for {}", what)};
  if (r.bandwidth <= 0)
    return {wanted, fmt::format("{} ({}) is tried within {:.1f} s: how fast the disk is was not measured yet",
                                what, mib, left)};
  const double whole = kMargin * static_cast<double>(r.bytes) / r.bandwidth;
  const double needs = r.writing ? std::max(0.0, whole - seconds(r.since)) : whole;
  const bool fits = needs <= left;
  return {fits ? wanted : What::kKeep,
          fmt::format("{} ({} at {:.0f} MiB/s) needs {:.1f} s more, {:.1f} s are left", what, mib,
                      r.bandwidth / kMiB, needs, left)};
}

}  // namespace regroup::cmd
