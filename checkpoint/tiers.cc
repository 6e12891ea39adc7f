// Crash safety follows from the order: every file is on disk before the manifest is written, and
// the manifest is removed before any file.
#include "checkpoint/tiers.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>
#include <vector>

#include "base/file_lock.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/file_io.h"

namespace regroup::checkpoint {
namespace {

using base::Result;
using base::Status;

constexpr std::uint64_t kMostManifest = 1ULL << 30;
constexpr std::chrono::milliseconds kPollInterval{50};
constexpr std::chrono::seconds kReleaseLimit{10};

std::string manifest_of(const std::string& path) {
  return fmt::format("{}/{}", path, kManifestName);
}

// False for an interrupted copy, which has no manifest.
bool has_manifest(const std::string& path) {
  return ::access(manifest_of(path).c_str(), F_OK) == 0;
}

Status remove_copy(const std::string& path) {
  if (::unlink(manifest_of(path).c_str()) != 0 && errno != ENOENT)
    return base::system_error("unlink", manifest_of(path), errno);
  REGROUP_RETURN_IF_ERROR(sync_folder(path));
  return remove_all(path);
}

Status copy_file(int source, const std::string& from, const std::string& to, std::uint64_t bytes,
                 const OnProgress& on_progress) {
  REGROUP_ASSIGN_OR_RETURN(const auto target, open_file(to, O_WRONLY | O_CREAT | O_EXCL));
  std::vector<std::byte> buffer(std::min(bytes, kBlock));
  ReadAhead ahead(source, bytes);
  for (std::uint64_t at = 0; at < bytes; at += buffer.size()) {
    const auto part = std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), bytes - at));
    ahead.reached(at);
    REGROUP_RETURN_IF_ERROR(read_at(source, at, part, from));
    REGROUP_RETURN_IF_ERROR(write_at(target.get(), at, part, to));
    if (on_progress) on_progress({at + part.size(), bytes});
  }
  return sync(target.get(), to);
}

// Verifies by reading, repeatedly until the deadline.
Status await_visible(const std::string& path, const CopyOptions& options) {
  const auto deadline = std::chrono::steady_clock::now() + options.visible_within;
  for (;;) {
    Status status = verify(path, options.on_progress);
    if (status.ok() || std::chrono::steady_clock::now() >= deadline) return status;
    std::this_thread::sleep_for(kPollInterval);
  }
}

Status copy_checkpoint(const Newest& newest, const std::string& target,
                       const CopyOptions& options) {
  REGROUP_ASSIGN_OR_RETURN(const auto source, Checkpoint::open(newest.path));
  REGROUP_ASSIGN_OR_RETURN(const auto manifest, read_file(manifest_of(newest.path), kMostManifest));
  const std::vector<File>& files = source.manifest().files;
  std::vector<base::Fd> open;  // opened first, since the checkpoint may be removed during the copy
  for (const File& file : files) {
    REGROUP_ASSIGN_OR_RETURN(auto fd,
                             open_file(fmt::format("{}/{}", newest.path, file.name), O_RDONLY));
    open.push_back(std::move(fd));
  }
  REGROUP_RETURN_IF_ERROR(make_folder(target));
  for (std::size_t i = 0; i < files.size(); ++i)
    REGROUP_RETURN_IF_ERROR(copy_file(
        open[i].get(), fmt::format("{}/{}", newest.path, files[i].name),
        fmt::format("{}/{}", target, files[i].name), files[i].bytes, options.on_progress));
  REGROUP_RETURN_IF_ERROR(sync_folder(target));
  REGROUP_RETURN_IF_ERROR(write_new_file(manifest_of(target), manifest));
  REGROUP_RETURN_IF_ERROR(sync_folder(target));
  return await_visible(target, options);
}

// Waits for the lock, since the previous job may be about to end.
Result<base::FileLock> borrow_lock(const std::string& directory, const OnProgress& on_progress) {
  const auto deadline = std::chrono::steady_clock::now() + kReleaseLimit;
  for (;;) {
    auto lock = base::FileLock::borrow(directory + "/LOCK");
    if (lock.code() != base::Code::kUnavailable || std::chrono::steady_clock::now() >= deadline)
      return lock;
    if (on_progress) on_progress({});
    std::this_thread::sleep_for(kPollInterval);
  }
}

Newest entry_of(const std::string& directory, proto::Step step) {
  return {step, path_of_step(directory, step)};
}

// Keeps `copied` even if there are newer ones, which may be damaged.
Status prune_copies(const std::string& directory, const Retention& retention, proto::Step copied) {
  REGROUP_ASSIGN_OR_RETURN(const auto entries, list(directory));
  std::vector<proto::Step> steps;
  for (const Entry& entry : entries) {
    if (has_manifest(entry.path))
      steps.push_back(entry.step);
    else
      REGROUP_RETURN_IF_ERROR(remove_all(entry.path));
  }
  for (const proto::Step step : steps_to_remove(steps, retention, copied))
    REGROUP_RETURN_IF_ERROR(remove_copy(entry_of(directory, step).path));
  return {};
}

}  // namespace

base::Result<std::optional<proto::Step>> copy_newest(const std::string& from, const std::string& to,
                                                     const CopyOptions& options, const Say& say) {
  using Found = Result<std::optional<Newest>>;
  const Found newest = options.verified ? Found(std::optional(entry_of(from, *options.verified)))
                                        : newest_good(from, /*aside=*/false, say);
  if (!newest.ok()) return newest.status();
  if (!newest->has_value()) return std::optional<proto::Step>();
  const std::string target = entry_of(to, (*newest)->step).path;
  if (has_manifest(target)) {
    if (verify(target, options.on_progress).ok()) return std::optional<proto::Step>();
    REGROUP_RETURN_IF_ERROR(remove_copy(target));
  }
  REGROUP_RETURN_IF_ERROR(remove_all(target));
  const Status copied = copy_checkpoint(**newest, target, options);
  if (!copied.ok()) {
    (void)remove_copy(target);
    return copied;
  }
  REGROUP_RETURN_IF_ERROR(sync_folder(to));
  REGROUP_RETURN_IF_ERROR(prune_copies(to, options.retention, (*newest)->step));
  return std::optional((*newest)->step);
}

base::Status await_copy(const std::string& directory, proto::Step step,
                        const CopyOptions& options) {
  return await_visible(entry_of(directory, step).path, options);
}

base::Result<std::optional<Newest>> newest_after(const std::string& local, proto::Step after,
                                                 const std::optional<Training>& of, const Say& say,
                                                 const OnProgress& on_progress) {
  const auto nobody_elses = borrow_lock(local, on_progress);
  if (!nobody_elses.ok() && nobody_elses.code() != base::Code::kNotFound)
    return nobody_elses.status();
  const auto entries = list(local);
  if (entries.code() == base::Code::kNotFound) return std::optional<Newest>();
  if (!entries.ok()) return entries.status();
  for (const Entry& entry : *entries) {
    if (entry.step <= after) break;
    const auto opened = Checkpoint::open(entry.path);
    if (opened.ok() && of &&
        (opened->manifest().seed != of->seed || opened->manifest().shards != of->shards)) {
      say(fmt::format(
          "checkpoint {} belongs to another training: seed {} and {} shards, expected {} and {}",
          entry.path, opened->manifest().seed, opened->manifest().shards, of->seed, of->shards));
      continue;
    }
    const Status status = opened.ok() ? verify(entry.path, on_progress) : opened.status();
    if (status.ok()) return std::optional(Newest{entry.step, entry.path});
    if (status.code() != base::Code::kDataLoss) return status;
    say(fmt::format("checkpoint {} is damaged and not used: {}", entry.path, status.message()));
  }
  return std::optional<Newest>();
}

base::Result<std::vector<proto::Step>> prepare_local(const std::string& local, proto::Step after) {
  REGROUP_RETURN_IF_ERROR(clean(local));
  REGROUP_ASSIGN_OR_RETURN(const auto entries, list(local));
  std::vector<proto::Step> aside;
  for (const Entry& entry : entries) {
    if (entry.step <= after) continue;
    const std::string reason =
        fmt::format("a job resumed after step {} from the shared directory", after);
    REGROUP_RETURN_IF_ERROR(set_aside(entry, reason, kNewer));
    aside.push_back(entry.step);
  }
  return aside;
}

}  // namespace regroup::checkpoint
