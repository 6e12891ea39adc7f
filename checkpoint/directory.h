// A directory of checkpoints: lists them, commits one (by a single rename), removes them, and locks
// the directory for its writers. docs/reference/formats/checkpoint.md names its entries.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file_lock.h"
#include "base/status.h"
#include "checkpoint/manifest.h"

namespace regroup::checkpoint {

// A committed checkpoint; its bytes may be damaged.
struct Entry {
  proto::Step step = 0;
  std::string path;
};
// Prefixes of checkpoints that were set aside: because the job resumed from an older one, and
// because they are damaged.
inline constexpr std::string_view kNewer = "newer-";
inline constexpr std::string_view kDamaged = "damaged-";
// Manifest::job of a checkpoint that `regroup checkpoint import` made.
inline constexpr const char* kImportJob = "import";
using Say = std::function<void(const std::string&)>;  // prints a line for the user

[[nodiscard]] std::string name_of_step(proto::Step step);  // "step-00001234"
[[nodiscard]] std::string path_of_step(const std::string& directory, proto::Step step);
[[nodiscard]] std::optional<proto::Step> step_of_name(const std::string& name);

// The checkpoints in `directory`, newest first. kNotFound: there is no such directory.
[[nodiscard]] base::Result<std::vector<Entry>> list(const std::string& directory);

// For a command that needs one checkpoint: the message if `path` is a directory of checkpoints,
// naming the newest. Empty if `path` is not such a directory, or has no checkpoint.
[[nodiscard]] std::optional<std::string> why_not_a_checkpoint(const std::string& path);

// The lock that a writer of a directory must hold. It ends at the latest with the process that took
// it.
class DirectoryLock {
 public:
  // Takes the lock, after creating the directory if it does not exist. kUnavailable: another job
  // holds it; the message quotes that job's `owner`.
  [[nodiscard]] static base::Result<DirectoryLock> take(const std::string& directory,
                                                        const std::string& owner);

 private:
  explicit DirectoryLock(base::FileLock lock) : lock_(std::move(lock)) {}
  base::FileLock lock_;
};

// Checks that `job` still owns the directory; for its processes that do not hold the lock, mostly
// on other hosts. Blocks for at most a second while the LOCK has no owner's name yet. kUnavailable:
// another job owns it now. kNotFound: it has no LOCK, so it is not the directory that the job has
// locked.
[[nodiscard]] base::Status check_owner(const std::string& directory, const std::string& job);

// The folder ("stage") into which all writers of one checkpoint write their files.
[[nodiscard]] std::string stage_path(const std::string& directory, proto::Step step,
                                     const std::string& uuid);
// Writes the manifest into the stage, whose other files must be on disk already, and renames the
// stage to the checkpoint of its step. On ok the checkpoint survives any crash. An error leaves all
// checkpoints as they were.
[[nodiscard]] base::Status commit_stage(const std::string& directory, const std::string& stage,
                                        const Manifest& manifest);
// Removes what crashes have left: stages and half-removed checkpoints. The caller holds the lock.
[[nodiscard]] base::Status clean(const std::string& directory);

struct Retention {
  std::uint32_t last = 3;   // number of newest checkpoints to keep; at least two are kept
  std::uint64_t every = 0;  // also keep those whose step is a multiple of this; 0: no others
};
// The steps of `steps` to remove. Never `made`, which the caller has just written, even if there
// are later steps.
[[nodiscard]] std::vector<proto::Step> steps_to_remove(std::vector<proto::Step> steps,
                                                       const Retention& retention,
                                                       std::optional<proto::Step> made = {});
// Removes these checkpoints and returns their steps. Keeps those that a kept one needs (chain.h),
// and enough that two whole ones are left, so that one damaged file does not lose all. The caller
// holds the lock.
[[nodiscard]] base::Result<std::vector<proto::Step>> prune(const std::string& directory,
                                                           const Retention& retention,
                                                           std::optional<proto::Step> made = {});

// Removes checkpoints that were set aside: each once retention.last checkpoints of its step or
// later are committed, and the oldest if more than retention.last have the same prefix. Returns the
// removed paths. The caller holds the lock.
[[nodiscard]] base::Result<std::vector<std::string>> prune_aside(const std::string& directory,
                                                                 const Retention& retention);

// Sets a checkpoint aside, usually because it is damaged: puts `prefix` before its name, so that
// list() omits it, and writes `reason` into it. The caller holds the lock.
[[nodiscard]] base::Status set_aside(const Entry& entry, const std::string& reason,
                                     std::string_view prefix = kDamaged);

}  // namespace regroup::checkpoint
