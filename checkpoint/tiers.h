// A second directory behind the one that a job writes to: on another file system, where rename may not be
// atomic and what was written may become visible late. There the MANIFEST is the commit: it is written last,
// and removed first. docs/formats/checkpoint.md.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/directory.h"
#include "core/clock.h"
#include "core/status.h"

namespace regroup::checkpoint {

struct CopyOptions {
  Retention retention;                                      // of the second directory
  core::Duration visible_within = std::chrono::minutes(1);  // what was written
  std::optional<core::Step> verified;                       // the caller has read it: that one is copied
  OnProgress on_progress = {};                              // of the file that is copied or verified
};

// Copies the newest good checkpoint of `from` to `to`, unless it is there, and removes from `to` what is not
// to be kept and what an interrupted copy left. For the holder of both locks; blocks on both devices. Damaged
// ones that are passed over are told to `say`. The step that was copied; nothing if there was nothing to do.
// kDataLoss: it does not verify in `to`, where it is no checkpoint then.
[[nodiscard]] core::Result<std::optional<core::Step>> copy_newest(const std::string& from,
                                                                  const std::string& to,
                                                                  const CopyOptions& options, const Say& say);

// Before a job goes on after step `after` from the second directory: what this host's own one has of later
// steps is set aside ("newer-step-..."), since the job makes those again, and what crashes left is removed.
// For the holder of its lock. Which were set aside: prune_aside() bounds how many.
[[nodiscard]] core::Result<std::vector<core::Step>> prepare_local(const std::string& local, core::Step after);

}  // namespace regroup::checkpoint
