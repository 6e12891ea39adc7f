// Compares bytes / measured bandwidth with the time to the deadline.
#include "checkpoint/writer/final_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>

namespace regroup::writer {
namespace {

constexpr double kBytesPerMiB = 1 << 20;
constexpr double kMargin = 1.2;  // the bandwidth of a disk varies

double seconds(base::Duration duration) { return std::chrono::duration<double>(duration).count(); }

// Seconds for the copy; 0: no copy is needed, or its bandwidth was not measured.
double copy_needs(const Remaining& r) {
  return r.copied && r.copy_bandwidth > 0
             ? kMargin * static_cast<double>(r.bytes) / r.copy_bandwidth
             : 0;
}

}  // namespace

const char* name_of(FinalCheckpointDecision::What what) {
  switch (what) {
    case FinalCheckpointDecision::What::kFinish:
      return "the checkpoint is finished before the end";
    case FinalCheckpointDecision::What::kPersist:
      return "a final checkpoint is written before the end";
    case FinalCheckpointDecision::What::kKeep:
      return "no final checkpoint, the last committed one is kept";
  }
  return "?";
}

FinalCheckpointDecision decide_final_checkpoint(const Remaining& r) {
  using What = FinalCheckpointDecision::What;
  const double left = seconds(r.time_left);
  const What wanted = r.writing ? What::kFinish : What::kPersist;
  const std::string what =
      r.writing ? fmt::format("the checkpoint of step {} that is being written", *r.writing)
                : "a final save";
  const std::string mib = fmt::format("{:.0f} MiB", static_cast<double>(r.bytes) / kBytesPerMiB);
  if (left <= 0) return {What::kKeep, fmt::format("no time is left for {}", what)};
  if (r.bandwidth <= 0)
    return {
        wanted,
        fmt::format(
            "{} ({}) is attempted within {:.1f} s: the disk's bandwidth has not been measured yet",
            what, mib, left)};
  const double whole = kMargin * static_cast<double>(r.bytes) / r.bandwidth;
  const double writing = r.writing ? std::max(0.0, whole - seconds(r.since)) : whole;
  const double copying = copy_needs(r);
  // A running copy continues while this one is written, and must end before the copy of this one
  // starts.
  const double needs =
      copying + std::max(writing, r.copying ? std::max(0.0, copying - seconds(*r.copying)) : 0);
  const std::string with = copying > 0
                               ? fmt::format(", {:.1f} s of them to copy it at {:.0f} MiB/s",
                                             copying, r.copy_bandwidth / kBytesPerMiB)
                               : "";
  return {needs <= left ? wanted : What::kKeep,
          fmt::format("{} ({} at {:.0f} MiB/s) needs {:.1f} s more{}, {:.1f} s are left", what, mib,
                      r.bandwidth / kBytesPerMiB, needs, with, left)};
}

base::TimePoint copied_by(base::TimePoint now, base::TimePoint deadline, std::uint64_t bytes,
                          double bandwidth) {
  const base::Duration left = std::max(base::Duration::zero(), deadline - now);
  const std::chrono::duration<double> needs(bandwidth > 0 ? static_cast<double>(bytes) / bandwidth
                                                          : 0);
  return deadline -
         std::max(left / 4, std::min(left / 2, std::chrono::duration_cast<base::Duration>(needs)));
}

bool must_request_again(const LastSeen& seen) {
  using Phase = shmem::SaveMark::Phase;
  if (seen.mark.phase == Phase::kReady || seen.mark.phase == Phase::kTaken) return false;
  if (seen.mark.phase == Phase::kIdle && seen.mark.step >= seen.newest) return false;
  switch (seen.request.what) {
    case shmem::SaveRequest::What::kClaimed:
      return !seen.claimant_lives;
    case shmem::SaveRequest::What::kAtBoundary:
      return seen.late;
    case shmem::SaveRequest::What::kNone:
    case shmem::SaveRequest::What::kLater:
    case shmem::SaveRequest::What::kNow:
      break;
  }
  return false;
}

std::string outcome_of_last(const LastSeen& seen, bool wrote) {
  using What = shmem::SaveRequest::What;
  if (seen.newest == 0) return "no final checkpoint: no member has completed a step";
  if (seen.mark.phase == shmem::SaveMark::Phase::kIdle && seen.mark.step >= seen.newest) {
    if (wrote) return "";
    return fmt::format("no final checkpoint: step {}, the last one, is saved already", seen.newest);
  }
  std::string why = "no member with this state was left";
  const bool copying = seen.mark.phase == shmem::SaveMark::Phase::kWanted || !wrote;
  if (seen.request.what == What::kNone)
    why = "no time was left to write it";
  else if (seen.request.what == What::kClaimed && copying)
    why = fmt::format("member {} ended while copying it", seen.claimant);
  else if (seen.request.what == What::kLater)
    why = "the previous checkpoint was still being written";
  else if (seen.request.open() && seen.all_had_left)
    why = "all members had left when it was requested";
  else if (seen.request.open())
    why =
        fmt::format("no member reached the end of its step, or waited for others, within {:.1f} s",
                    seconds(seen.since));
  return fmt::format("the state after step {} is not saved: {}", seen.newest, why);
}

}  // namespace regroup::writer
