// Directories are read by processes of their own, for one that does not answer must not hold the
// launcher.
#include "launcher/job/checkpoint_start.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/lock_owner.h"
#include "checkpoint/writer/persist_task.h"
#include "launcher/job/start.h"
#include "launcher/process/run_in_subprocess.h"
#include "launcher/process/time_limit.h"

namespace regroup::job {
namespace {

namespace fs = std::filesystem;
using base::Result;
using base::Status;
using Json = nlohmann::json;

constexpr const char* kPassOver = "pass-over";  // damaged ones stay where they are
constexpr std::chrono::seconds kLockLimit(10);  // to lock a directory; time_limit() may change it
// A job without a launcher needs so long after --orphan-timeout.
constexpr std::chrono::seconds kClearing(5);
// Between two reports of a process that reads checkpoints.
constexpr std::chrono::seconds kQuietLimit(30);
constexpr std::chrono::seconds kSyncLimit(600);  // for fsync of a file that regroup-persist copies

// The newest intact checkpoint of `places`, which have the form of regroup-persist. Damaged ones
// are reported on standard error.
Result<std::optional<writer::Resume>> newest_in(const std::vector<std::string>& places,
                                                const std::string& directory,
                                                const spec::JobSpec& spec) {
  std::vector<std::string> words{"regroup-persist", "newest"};
  words.insert(words.end(), places.begin(), places.end());
  REGROUP_ASSIGN_OR_RETURN(
      const auto text, process::run_persist(std::move(words), "--checkpoint " + directory,
                                            process::time_limit(spec.environment, kQuietLimit)));
  return writer::resume_of(text, "--checkpoint " + directory, spec.ps_memory != 0);
}

std::string absolute(const std::string& path) {
  std::error_code error;
  return fs::absolute(path, error).lexically_normal().string();
}

process::LockWait lock_wait(const spec::JobSpec& spec, const std::string& option) {
  return {process::time_limit(spec.environment, kLockLimit), spec.orphan_timeout + kClearing,
          [option](const std::string& text) { fail(fmt::format("{} {}", option, text), 0); }};
}

// Creates the directory if it does not exist, and writes the job into its LOCK.
Status take(const std::string& option, const std::string& path, const std::string& job,
            const spec::JobSpec& spec, process::HeldLocks* locks) {
  auto taken =
      process::take_directory(path, base::lock_owner(job), /*make=*/true, lock_wait(spec, option));
  if (!taken.ok()) return {taken.code(), fmt::format("{} {}", option, taken.status().message())};
  locks->add(std::move(**taken));
  return {};
}

// For a host that may have neither a member nor such a directory: returns no lock then. Fails if
// another job holds the lock.
Result<std::optional<base::FileLock>> take_if_there(const std::string& path, const std::string& job,
                                                    const spec::JobSpec& spec) {
  auto taken = process::take_directory(path, base::lock_owner(job), /*make=*/false,
                                       lock_wait(spec, "--checkpoint"));
  if (taken.ok()) return taken;
  const std::string why = "--checkpoint " + taken.status().message();
  if (taken.code() == base::Code::kUnavailable) return Status(taken.code(), why);
  fail(fmt::format("{}: checkpoints of this host there are ignored", why), 0);
  return std::optional<base::FileLock>();
}

// The checkpoint from which a job on several hosts resumes. All hosts see only `plan.shared`, so a
// newer checkpoint of the launcher's own directory is copied there first.
Result<std::optional<writer::Resume>> newest_of_hosts(const writer::CheckpointPlan& plan,
                                                      const spec::JobSpec& spec) {
  const spec::CheckpointRequest& asked = spec.checkpoint;
  REGROUP_ASSIGN_OR_RETURN(const auto own, take_if_there(plan.directory, plan.job, spec));
  if (!own.has_value()) return newest_in({plan.shared, kPassOver}, plan.shared, spec);
  auto newest = newest_in({plan.shared, kPassOver, plan.directory}, plan.directory, spec);
  if (!newest.ok() || !newest->has_value()) return newest;
  const std::string name = fs::path((*newest)->path).filename().string();
  if ((*newest)->path == fmt::format("{}/{}", plan.shared, name)) return newest;
  REGROUP_RETURN_IF_ERROR(
      process::run_persist({"regroup-persist", "copy", plan.directory, plan.shared, plan.job,
                            std::to_string(asked.keep), std::to_string(asked.keep_every),
                            std::to_string((*newest)->step)},
                           fmt::format("--checkpoint {} and {}", plan.directory, plan.shared),
                           kSyncLimit)
          .status());
  (*newest)->path = fmt::format("{}/{}", plan.shared, name);
  return newest;
}

}  // namespace

Status check_resumed_options(const spec::JobSpec& spec, const writer::Resume& resume) {
  const auto given = [&](std::string_view name) {
    return std::ranges::any_of(spec.world_options, [&](const std::string& option) {
      return std::string_view(option).substr(option.find_first_not_of('-')) == name;
    });
  };
  const auto refused = [&](std::string_view name, std::uint64_t here, std::uint64_t there) {
    return base::invalid_argument(fmt::format(
        "--{0} {1}: checkpoint {3} was made with --{0} {2}, which a job that goes on from it "
        "keeps; leave out --{0}, or give another directory with --checkpoint to begin anew",
        name, here, there, resume.path));
  };
  if (given("seed") && spec.seed != resume.seed) return refused("seed", spec.seed, resume.seed);
  if (given("shards") && spec.shards != resume.shards)
    return refused("shards", spec.shards, resume.shards);
  return {};
}

Result<WorldStart> prepare_checkpoints(const spec::JobSpec& spec, std::uint32_t shards,
                                       const std::string& job, bool hosts,
                                       process::HeldLocks* locks) {
  WorldStart out{{}, spec.seed, shards};
  writer::CheckpointPlan& plan = out.checkpoints;
  const spec::CheckpointRequest& asked = spec.checkpoint;
  if (asked.directory.empty() && !asked.shared.empty())
    return base::invalid_argument("--checkpoint-shared: requires --checkpoint DIR");
  if (asked.directory.empty()) return out;
  plan.directory = absolute(asked.directory);
  plan.job = job;
  if (!asked.shared.empty()) {
    plan.shared = absolute(asked.shared);
    REGROUP_RETURN_IF_ERROR(take("--checkpoint-shared", plan.shared, job, spec, locks));
  }
  Result<std::optional<writer::Resume>> newest = std::optional<writer::Resume>();
  if (hosts && !plan.shared.empty()) {
    newest = newest_of_hosts(plan, spec);
  } else {
    REGROUP_RETURN_IF_ERROR(take("--checkpoint", plan.directory, job, spec, locks));
    std::vector<std::string> places{plan.directory};
    if (!plan.shared.empty()) places.insert(places.end(), {plan.shared, kPassOver});
    newest = newest_in(places, plan.directory, spec);
  }
  if (!newest.ok()) return newest.status();
  plan.resume = std::move(*newest);
  if (plan.resume) {
    REGROUP_RETURN_IF_ERROR(check_resumed_options(spec, *plan.resume));
    out.seed = plan.resume->seed;
    out.shards = plan.resume->shards;
  }
  plan.every = asked.every;
  plan.keep_last = asked.keep;
  plan.keep_every = asked.keep_every;
  plan.memory = asked.memory;
  plan.seed = out.seed;
  plan.shards = out.shards;
  return out;
}

}  // namespace regroup::job
