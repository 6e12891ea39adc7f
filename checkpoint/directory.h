// A directory of checkpoints: which there are, how one appears (by one rename) and disappears, and
// who may write. docs/reference/formats/checkpoint.md names its entries.
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

// A committed checkpoint, whether its bytes are good or not.
struct Entry {
  proto::Step step = 0;
  std::string path;
};
// Prefix of one that was set aside for an older one.
inline constexpr std::string_view kNewer = "newer-";
inline constexpr std::string_view kDamaged = "damaged-";  // and of one that is damaged
// Manifest::job of what `checkpoint import` makes.
inline constexpr const char* kImportJob = "import";
using Say = std::function<void(const std::string&)>;

[[nodiscard]] std::string name_of_step(proto::Step step);  // "step-00001234"
[[nodiscard]] std::optional<proto::Step> step_of_name(const std::string& name);

// Newest first. kNotFound: there is no such directory.
[[nodiscard]] base::Result<std::vector<Entry>> list(const std::string& directory);

// What to say of `path` where one checkpoint is wanted and it is a directory of them: it names the
// newest. Nothing: it is none, or an empty one.
[[nodiscard]] std::optional<std::string> why_not_one(const std::string& path);

// Writers of a directory hold its lock; it ends with the process that took it, at the latest.
class DirectoryLock {
 public:
  // Makes the directory if need be. kUnavailable: another job has it; the message names that job.
  // `owner` is a line for that message.
  [[nodiscard]] static base::Result<DirectoryLock> take(const std::string& directory,
                                                        const std::string& owner);

 private:
  explicit DirectoryLock(base::FileLock lock) : lock_(std::move(lock)) {}
  base::FileLock lock_;
};

// For processes of a job that do not have its lock themselves, on other hosts above all.
// kUnavailable: the directory is another job's by now; kNotFound: it has no LOCK, so it is not the
// one that the job has taken.
[[nodiscard]] base::Status check_owner(const std::string& directory, const std::string& job);

// Where the writers of one checkpoint put their files: all of them name it the same.
[[nodiscard]] std::string stage_path(const std::string& directory, proto::Step step,
                                     const std::string& uuid);
// Writes the manifest into the stage, all of whose files are on the disk, and makes it the
// checkpoint of its step: when this returns ok no crash takes it away any more. An error leaves the
// checkpoints as they were.
[[nodiscard]] base::Status commit_stage(const std::string& directory, const std::string& stage,
                                        const Manifest& manifest);
// The holder of the lock: removes what crashes left, stages and half-removed checkpoints.
[[nodiscard]] base::Status clean(const std::string& directory);

struct Retention {
  std::uint32_t last = 3;   // the newest so many are kept, never fewer than two
  std::uint64_t every = 0;  // and those whose step is a multiple of it; 0: no others
};
// Of `steps`, those to be removed; never `made`, which the caller has just made: there may be later
// steps.
[[nodiscard]] std::vector<proto::Step> superfluous(std::vector<proto::Step> steps,
                                                   const Retention& retention,
                                                   std::optional<proto::Step> made = {});
// The holder of the lock: removes them. What was removed.
[[nodiscard]] base::Result<std::vector<proto::Step>> prune(const std::string& directory,
                                                           const Retention& retention,
                                                           std::optional<proto::Step> made = {});

// Those that were set aside: one goes once so many of its step or a later one are committed as are
// kept, and never more of a prefix stay than that. The holder of the lock. Paths of what was
// removed.
[[nodiscard]] base::Result<std::vector<std::string>> prune_aside(const std::string& directory,
                                                                 const Retention& retention);

// The holder of the lock: takes a checkpoint, a damaged one as a rule, out of the list by putting
// `prefix` before its name, and writes `reason` into it.
[[nodiscard]] base::Status set_aside(const Entry& entry, const std::string& reason,
                                     std::string_view prefix = kDamaged);

}  // namespace regroup::checkpoint
