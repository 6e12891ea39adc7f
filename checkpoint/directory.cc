// Entries of a directory of checkpoints. commit_stage() keeps its promise by the order of its
// calls: files, manifest and stage are on disk before the rename, and the rename is on disk before
// the call returns.
#include "checkpoint/directory.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <set>
#include <thread>

#include "base/lock_owner.h"
#include "checkpoint/chain.h"
#include "checkpoint/file_io.h"

namespace regroup::checkpoint {
namespace {

namespace fs = std::filesystem;
using base::Code;
using base::Status;

constexpr std::string_view kStep = "step-", kStage = ".stage-", kTrash = ".trash-";
constexpr std::string_view kLock = "LOCK", kHint = "LATEST", kReason = "REASON";
constexpr std::uint64_t kMostLock = 4096;  // bytes
constexpr int kMostAside = 1000;
constexpr int kTakingTries = 100;  // a second in all
constexpr std::chrono::milliseconds kTakingPause{10};
constexpr std::uint32_t kLeastKept = 2;

// Names in `directory`, in no order.
base::Result<std::vector<std::string>> names_in(const std::string& directory) {
  std::error_code error;
  std::vector<std::string> out;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error))
    out.push_back(entry->path().filename().string());
  if (error) return base::system_error("readdir", directory, error.value());
  return out;
}

bool is_folder(const std::string& path) {
  struct stat of {};
  return ::lstat(path.c_str(), &of) == 0 && S_ISDIR(of.st_mode);
}

// For people and scripts. No program relies on it, so it is not synced, and errors are ignored.
void write_hint(const std::string& directory, const std::string& name) {
  const std::string next = fmt::format("{}/.{}-{}", directory, kHint, ::getpid());
  (void)remove_all(next);
  if (!write_new_file(next, name + "\n", /*durable=*/false).ok() ||
      !rename_path(next, fmt::format("{}/{}", directory, kHint)).ok())
    (void)remove_all(next);
}

// Renames the checkpoint first, so that list() never shows one that is half removed.
Status remove_checkpoint(const std::string& directory, const Entry& entry) {
  const std::string trash =
      fmt::format("{}/{}{}-{}", directory, kTrash, name_of_step(entry.step), ::getpid());
  REGROUP_RETURN_IF_ERROR(remove_all(trash));
  const Status renamed = rename_path(entry.path, trash);
  if (renamed.code() == Code::kNotFound) return {};  // another host of the job was faster
  REGROUP_RETURN_IF_ERROR(renamed);
  return remove_all(trash);
}

// Takes the checkpoint of `step` and those that it needs from `removed`. Returns the step of the
// whole one.
base::Result<proto::Step> keep(const std::string& directory, proto::Step step,
                               std::vector<proto::Step>& removed) {
  for (;;) {
    std::erase(removed, step);
    REGROUP_ASSIGN_OR_RETURN(const auto base, base_of(path_of_step(directory, step)));
    if (!base || *base >= step) return step;
    step = *base;
  }
}

// The step of a checkpoint that was set aside, and its number among those of the same step.
std::optional<std::pair<proto::Step, int>> aside_of_name(std::string_view name,
                                                         std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  const std::string_view of = name.substr(0, name.find('.'));
  const auto step = step_of_name(std::string(of));
  if (!step || of.size() == name.size())
    return step ? std::optional(std::pair(*step, 0)) : std::nullopt;
  const std::string_view digits = name.substr(of.size() + 1);
  int number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size() || number <= 0)
    return std::nullopt;
  return std::pair(*step, number);
}

}  // namespace

std::string name_of_step(proto::Step step) { return fmt::format("{}{:08}", kStep, step); }

std::string path_of_step(const std::string& directory, proto::Step step) {
  return fmt::format("{}/{}", directory, name_of_step(step));
}

std::optional<proto::Step> step_of_name(const std::string& name) {
  proto::Step step = 0;
  if (!name.starts_with(kStep)) return std::nullopt;
  const auto [end, error] =
      std::from_chars(name.data() + kStep.size(), name.data() + name.size(), step);
  if (error != std::errc() || name != name_of_step(step)) return std::nullopt;
  return step;
}

base::Result<std::vector<Entry>> list(const std::string& directory) {
  REGROUP_ASSIGN_OR_RETURN(auto names, names_in(directory));
  std::vector<Entry> out;
  for (const std::string& name : names) {
    const auto step = step_of_name(name);
    const std::string path = fmt::format("{}/{}", directory, name);
    if (step && is_folder(path)) out.push_back({*step, path});
  }
  std::ranges::sort(out, std::ranges::greater(), &Entry::step);
  return out;
}

std::optional<std::string> why_not_a_checkpoint(const std::string& path) {
  const auto entries = list(path);
  if (!entries.ok() || entries->empty()) return std::nullopt;
  return fmt::format("{} is a directory of checkpoints; give one of them: {} is the newest", path,
                     entries->front().path);
}

base::Result<DirectoryLock> DirectoryLock::take(const std::string& directory,
                                                const std::string& owner) {
  REGROUP_RETURN_IF_ERROR(make_folder(directory));
  auto lock = base::FileLock::take(fmt::format("{}/{}", directory, kLock), owner);
  if (lock.code() == Code::kUnavailable) {
    const auto holder = read_file(fmt::format("{}/{}", directory, kLock), kMostLock);
    if (holder.ok() && base::owner_has_ended(*holder))
      return base::unavailable(lock.status().message() +
                               ", whose launcher has ended: the job ends within seconds "
                               "(--orphan-timeout); try again");
  }
  if (!lock.ok()) return lock.status();
  return DirectoryLock(std::move(*lock));
}

Status check_owner(const std::string& directory, const std::string& job) {
  const std::string path = fmt::format("{}/{}", directory, kLock);
  auto line = read_file(path, kMostLock);
  // The process that takes the lock makes the file, then writes its name into it.
  for (int i = 0; i < kTakingTries && line.ok() && line->empty(); ++i) {
    std::this_thread::sleep_for(kTakingPause);
    line = read_file(path, kMostLock);
  }
  if (line.status().code() == Code::kNotFound)
    return base::not_found(fmt::format(
        "{}: not the directory that job {} has locked: LOCK is missing", directory, job));
  if (!line.ok()) return line.status();
  if (line->starts_with(fmt::format("job {} ", job))) return {};
  return base::unavailable(fmt::format("{}: {:?} has it, not job {}", path, *line, job));
}

std::string stage_path(const std::string& directory, proto::Step step, const std::string& uuid) {
  return fmt::format("{}/{}{}-{}", directory, kStage, step, uuid);
}

Status commit_stage(const std::string& directory, const std::string& stage,
                    const Manifest& manifest) {
  const std::string target = path_of_step(directory, manifest.step);
  if (is_folder(target))  // rename() would replace an empty folder
    return base::invalid_argument(
        fmt::format("{}: a checkpoint of this step exists already", target));
  REGROUP_RETURN_IF_ERROR(
      write_new_file(fmt::format("{}/{}", stage, kManifestName), encode(manifest)));
  REGROUP_RETURN_IF_ERROR(sync_folder(stage));
  REGROUP_RETURN_IF_ERROR(rename_path(stage, target));
  REGROUP_RETURN_IF_ERROR(sync_folder(directory));
  write_hint(directory, name_of_step(manifest.step));
  return {};
}

Status clean(const std::string& directory) {
  REGROUP_ASSIGN_OR_RETURN(auto names, names_in(directory));
  for (const std::string& name : names) {
    if (name.starts_with(kStage) || name.starts_with(kTrash) ||
        name.starts_with(fmt::format(".{}-", kHint)))
      REGROUP_RETURN_IF_ERROR(remove_all(fmt::format("{}/{}", directory, name)));
  }
  return {};
}

std::vector<proto::Step> steps_to_remove(std::vector<proto::Step> steps, const Retention& retention,
                                         std::optional<proto::Step> made) {
  std::ranges::sort(steps, std::greater());
  const std::size_t kept = std::max(retention.last, kLeastKept);
  std::vector<proto::Step> out;
  for (std::size_t i = kept; i < steps.size(); ++i) {
    const bool kept_for_good = retention.every != 0 && steps[i] % retention.every == 0;
    if (!kept_for_good && steps[i] != made) out.push_back(steps[i]);
  }
  return out;
}

base::Result<std::vector<proto::Step>> prune(const std::string& directory,
                                             const Retention& retention,
                                             std::optional<proto::Step> made) {
  REGROUP_ASSIGN_OR_RETURN(auto entries, list(directory));
  std::vector<proto::Step> steps;
  for (const Entry& entry : entries) steps.push_back(entry.step);
  std::vector<proto::Step> out = steps_to_remove(steps, retention, made);
  std::ranges::sort(steps, std::greater());
  std::set<proto::Step> whole;  // among those that are kept
  for (const proto::Step step : steps) {
    if (std::ranges::find(out, step) != out.end() && whole.size() >= kLeastKept) continue;
    REGROUP_ASSIGN_OR_RETURN(const proto::Step first, keep(directory, step, out));
    whole.insert(first);
  }
  for (const proto::Step step : out)
    REGROUP_RETURN_IF_ERROR(remove_checkpoint(directory, {step, path_of_step(directory, step)}));
  return out;
}

base::Result<std::vector<std::string>> prune_aside(const std::string& directory,
                                                   const Retention& retention) {
  REGROUP_ASSIGN_OR_RETURN(const auto committed, list(directory));
  REGROUP_ASSIGN_OR_RETURN(const auto names, names_in(directory));
  const std::size_t kept = std::max(retention.last, kLeastKept);
  std::vector<std::string> out;
  for (const std::string_view prefix : {kNewer, kDamaged}) {
    std::vector<std::pair<std::pair<proto::Step, int>, std::string>> aside;
    for (const std::string& name : names) {
      if (const auto of = aside_of_name(name, prefix)) aside.emplace_back(*of, name);
    }
    std::ranges::sort(aside, std::greater());
    for (std::size_t i = 0; i < aside.size(); ++i) {
      const proto::Step step = aside[i].first.first;
      const auto since =
          std::ranges::count_if(committed, [&](const Entry& e) { return e.step >= step; });
      if (i < kept && static_cast<std::size_t>(since) < kept) continue;
      const std::string path = fmt::format("{}/{}", directory, aside[i].second);
      REGROUP_RETURN_IF_ERROR(remove_checkpoint(directory, {step, path}));
      out.push_back(path);
    }
  }
  return out;
}

Status set_aside(const Entry& entry, const std::string& reason, std::string_view prefix) {
  const fs::path from(entry.path);
  for (int i = 0; i < kMostAside; ++i) {
    const std::string suffix = i == 0 ? "" : fmt::format(".{}", i);
    const std::string to = fmt::format("{}/{}{}{}", from.parent_path().string(), prefix,
                                       name_of_step(entry.step), suffix);
    if (is_folder(to)) continue;
    REGROUP_RETURN_IF_ERROR(rename_path(entry.path, to));
    REGROUP_RETURN_IF_ERROR(sync_folder(from.parent_path().string()));
    (void)remove_all(fmt::format("{}/{}", to, kReason));
    return write_new_file(fmt::format("{}/{}", to, kReason), reason + "\n");
  }
  return base::internal_error(fmt::format(
      "{}: {} damaged checkpoints of this step are set aside already", entry.path, kMostAside));
}

}  // namespace regroup::checkpoint
