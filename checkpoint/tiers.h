// A second directory behind the one that a job writes to: on another file system, where rename may
// not be atomic and what was written may become visible late. There the MANIFEST is the commit: it
// is written last, and removed first. docs/reference/formats/checkpoint.md.
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
  Retention retention;                                      // of the second directory
  base::Duration visible_within = std::chrono::minutes(1);  // what was written
  std::optional<proto::Step> verified;  // the caller has read it: that one is copied
  OnProgress on_progress = {};          // of the file that is copied or verified
};

// Copies the newest good checkpoint of `from` to `to`, unless it is there, and removes from `to`
// what is not to be kept and what an interrupted copy left. For the holder of both locks; blocks on
// both devices. Damaged ones that are passed over are told to `say`. The step that was copied;
// nothing if there was nothing to do. kDataLoss: it does not verify in `to`, where it is no
// checkpoint then.
[[nodiscard]] base::Result<std::optional<proto::Step>> copy_newest(const std::string& from,
                                                                   const std::string& to,
                                                                   const CopyOptions& options,
                                                                   const Say& say);

// Until that copy is seen here with all its bytes as they were written, as what another host has
// copied may be late; options.visible_within at most. kDataLoss: it is not.
[[nodiscard]] base::Status await_copy(const std::string& directory, proto::Step step,
                                      const CopyOptions& options);

// What a checkpoint must share with those that it is to go on behind.
struct Training {
  std::uint64_t seed = 0;
  std::uint32_t shards = 1;
};
// The newest good one of later steps than `after` in this host's own directory, nothing if there is
// none; the directory stays as it is. Damaged ones, and those of another training than `of`, are
// passed over and told to `say`. kUnavailable: a job, which the message names, has the directory
// and has not given it back within 10 s.
[[nodiscard]] base::Result<std::optional<Newest>> newest_after(const std::string& local,
                                                               proto::Step after,
                                                               const std::optional<Training>& of,
                                                               const Say& say,
                                                               const OnProgress& on_progress = {});

// Before a job goes on after step `after` from the second directory: what this host's own one has
// of later steps is set aside ("newer-step-..."), since the job makes those again, and what crashes
// left is removed. For the holder of its lock. Which were set aside: prune_aside() bounds how many.
[[nodiscard]] base::Result<std::vector<proto::Step>> prepare_local(const std::string& local,
                                                                   proto::Step after);

}  // namespace regroup::checkpoint
