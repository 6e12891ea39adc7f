// What a job with checkpoints goes on from, before anything of it runs.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "launcher/cmd/checkpoints.h"
#include "launcher/supervise/environment.h"
#include "launcher/supervise/spawn.h"

namespace regroup::cmd {
namespace {

namespace fs = std::filesystem;
using core::Result;
using core::Status;
using Json = nlohmann::json;

// What regroup-persist prints. What it says of damaged ones, or of errors, goes to our standard error.
Result<std::string> ask_persist(std::vector<std::string> words, const std::string& directory) {
  const std::string program = launcher::find_helper("regroup-persist");
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return core::system_error("pipe", "regroup-persist", errno);
  core::Fd ours(ends[0]), theirs(ends[1]);
  launcher::SpawnSpec spec;
  spec.path = program;
  spec.argv = std::move(words);
  spec.in = STDIN_FILENO, spec.out = theirs.get(), spec.err = STDERR_FILENO;
  const auto pid = launcher::spawn(spec);
  if (!pid.ok()) return pid.status();
  theirs.reset();
  std::string text;
  std::array<char, 4096> part{};
  for (ssize_t count = 1; count > 0 || (count < 0 && errno == EINTR);) {
    count = ::read(ours.get(), part.data(), part.size());
    if (count > 0) text.append(part.data(), static_cast<std::size_t>(count));
  }
  int status = 0;
  while (::waitpid(*pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return core::internal_error(fmt::format("--checkpoint {}: its checkpoints cannot be read", directory));
  return text;
}

Result<std::string> ask_newest(const std::string& directory, bool aside) {
  std::vector<std::string> words{"regroup-persist", "newest", directory};
  if (!aside) words.emplace_back("pass-over");
  return ask_persist(std::move(words), directory);
}

Result<std::optional<Resume>> newest_in(const std::string& directory, bool aside) {
  const auto text = ask_newest(directory, aside);
  if (!text.ok()) return text.status();
  const Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object())
    return core::internal_error(fmt::format("--checkpoint {}: regroup-persist said {:?}", directory, *text));
  if (json.empty()) return std::optional<Resume>();
  const auto unsigned_at = [&](const char* key) {
    return json.contains(key) && json[key].is_number_unsigned();
  };
  if (!unsigned_at("step") || !unsigned_at("seed") || !unsigned_at("shards") || !json["path"].is_string() ||
      !json["fingerprint"].is_string())
    return core::internal_error(fmt::format("--checkpoint {}: regroup-persist said {:?}", directory, *text));
  return std::optional(Resume{json.value("path", ""), json.value("step", core::Step{0}),
                              json.value("seed", std::uint64_t{0}), json.value("shards", std::uint32_t{1}),
                              json["fingerprint"].get<std::string>()});
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

std::string absolute(const std::string& path) {
  std::error_code error;
  return fs::absolute(path, error).lexically_normal().string();
}

}  // namespace

Result<core::FileLock> take_directory(const std::string& path, const std::string& job) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return core::system_error("mkdir", path, error.value());
  // docs/formats/checkpoint.md: what checkpoint::check_owner() reads.
  auto taken = core::FileLock::take(path + "/LOCK",
                                    fmt::format("job {} (process {} on {})", job, ::getpid(), host_name()));
  if (!taken.ok()) return Status(taken.code(), "--checkpoint " + taken.status().message());
  return taken;
}

std::string resumes(const CheckpointPlan& plan) {
  return fmt::format("the job goes on after step {}, from {}", plan.resume->step, plan.resume->path);
}

std::string local_copy(const CheckpointPlan& plan) {
  if (!plan.resume || plan.shared.empty()) return {};
  return fmt::format("{}/{}", plan.directory, fs::path(plan.resume->path).filename().string());
}

Result<CheckpointPlan> prepare_checkpoints(Options* options, const std::string& job, bool hosts,
                                           std::vector<core::FileLock>* locks) {
  CheckpointPlan plan;
  const launcher::CheckpointRequest& asked = options->checkpoint;
  if (asked.directory.empty() && !asked.shared.empty())
    return core::invalid_argument("--checkpoint-shared: it is behind a directory; say which by --checkpoint");
  if (asked.directory.empty()) return plan;
  std::vector<core::FileLock> own;  // for the moment: agents take theirs
  const bool each = hosts && !asked.shared.empty();
  plan.directory = absolute(asked.directory);
  auto lock = take_directory(plan.directory, job);
  if (!lock.ok()) return lock.status();
  (each ? own : *locks).push_back(std::move(*lock));
  auto resume = newest_in(plan.directory, /*aside=*/true);
  if (!resume.ok()) return resume.status();
  plan.resume = std::move(*resume);
  if (!asked.shared.empty()) {
    plan.shared = absolute(asked.shared);
    lock = take_directory(plan.shared, job);
    if (!lock.ok()) return lock.status();
    locks->push_back(std::move(*lock));
    resume = newest_in(plan.shared, /*aside=*/false);
    if (!resume.ok()) return resume.status();
    const bool shared_is_newer = *resume && (!plan.resume || (*resume)->step > plan.resume->step);
    if (each && plan.resume && !shared_is_newer) {
      const auto copied = ask_persist({"regroup-persist", "copy", plan.directory, plan.shared, job,
                                       std::to_string(asked.keep), std::to_string(asked.keep_every)},
                                      plan.directory);
      if (!copied.ok()) return copied.status();
      resume = newest_in(plan.shared, /*aside=*/false);
      if (!resume.ok()) return resume.status();
    }
    if (each || shared_is_newer) plan.resume = std::move(*resume);
  }
  if (plan.resume) {
    options->seed = plan.resume->seed;
    options->shards = plan.resume->shards;
  }
  plan.every = options->checkpoint.every;
  plan.keep_last = options->checkpoint.keep;
  plan.keep_every = options->checkpoint.keep_every;
  plan.memory = options->checkpoint.memory;
  plan.job = job;
  plan.seed = options->seed;
  plan.shards = options->shards;
  return plan;
}

}  // namespace regroup::cmd
