// Copies checkpoints from the local directory that a job writes to a second directory on another
// file system, where rename() may not be atomic and writes may become visible late. There the
// MANIFEST is the commit record: it is written last and removed first.
// docs/reference/formats/checkpoint.md.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/directory.h"

namespace regroup::checkpoint {

struct CopyOptions {
  Retention retention;                                      // for the second directory
  base::Duration visible_within = std::chrono::minutes(1);  // until writes are visible
  std::optional<proto::Step> verified;  // copy this step, which the caller has verified
  OnProgress on_progress = {};          // called while a file is copied or verified
};

// Copies the newest good checkpoint of `from` to `to`, unless `to` has it, and removes from `to`
// what the retention does not keep and what an interrupted copy has left. Calls `say` for damaged
// ones that it skips. Returns the copied step; empty if there was nothing to copy. kDataLoss: the
// copy does not verify, and is not committed in `to`. The caller holds both locks. Blocks on both
// devices.
[[nodiscard]] base::Result<std::optional<proto::Step>> copy_newest(const std::string& from,
                                                                   const std::string& to,
                                                                   const CopyOptions& options,
                                                                   const Say& say);

// Waits until this host sees all bytes of a copy that another host has made, at most
// options.visible_within. kDataLoss: it does not.
[[nodiscard]] base::Status await_copy(const std::string& directory, proto::Step step,
                                      const CopyOptions& options);

// What two checkpoints of the same training have in common.
struct Training {
  std::uint64_t seed = 0;
  std::uint32_t shards = 1;
};
// The newest good checkpoint in this host's local directory of a later step than `after`; empty if
// there is none. Changes nothing in the directory. Skips damaged checkpoints and those of another
// training than `of`, and calls `say` for them. kUnavailable: another job, which the message names,
// has not released the directory within 10 s.
[[nodiscard]] base::Result<std::optional<Newest>> newest_after(const std::string& local,
                                                               proto::Step after,
                                                               const std::optional<Training>& of,
                                                               const Say& say,
                                                               const OnProgress& on_progress = {});

// Prepares the local directory before a job resumes after step `after` from the second directory:
// sets checkpoints of later steps aside ("newer-step-..."), since the job will compute those steps
// again, and removes what crashes have left. Returns the steps that were set aside; prune_aside()
// bounds their number. The caller holds the lock.
[[nodiscard]] base::Result<std::vector<proto::Step>> prepare_local(const std::string& local,
                                                                   proto::Step after);

}  // namespace regroup::checkpoint
