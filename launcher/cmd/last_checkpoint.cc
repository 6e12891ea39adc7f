// Bytes / measured bandwidth against the deadline.
#include "launcher/cmd/last_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>

namespace regroup::cmd {
namespace {

constexpr double kMiB = 1 << 20;
constexpr double kMargin = 1.2;  // disks are not always as fast as before

double seconds(core::Duration duration) { return std::chrono::duration<double>(duration).count(); }

// Seconds for a copy of it; 0: none counts, or how fast one is was not measured yet.
double copy_needs(const Remaining& r) {
  return r.copied && r.copy_bandwidth > 0 ? kMargin * static_cast<double>(r.bytes) / r.copy_bandwidth : 0;
}

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
  const double writing = r.writing ? std::max(0.0, whole - seconds(r.since)) : whole;
  const double copying = copy_needs(r);
  // A copy that is on its way goes on beside the writing, and comes before this one's.
  const double needs =
      copying + std::max(writing, r.copying ? std::max(0.0, copying - seconds(*r.copying)) : 0);
  const std::string with = copying > 0 ? fmt::format(", {:.1f} s of them to be copied at {:.0f} MiB/s",
                                                     copying, r.copy_bandwidth / kMiB)
                                       : "";
  return {needs <= left ? wanted : What::kKeep,
          fmt::format("{} ({} at {:.0f} MiB/s) needs {:.1f} s more{}, {:.1f} s are left", what, mib,
                      r.bandwidth / kMiB, needs, with, left)};
}

}  // namespace regroup::cmd
