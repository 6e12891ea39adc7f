// One regroup-persist for each checkpoint: an error, a crash or a slow disk costs that one and holds up
// nobody.
#include "launcher/cmd/checkpoints.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "launcher/supervise/app.h"
#include "launcher/supervise/environment.h"
#include "launcher/supervise/spawn.h"

namespace regroup::cmd {
namespace {

namespace fs = std::filesystem;
using core::Result;
using core::SaveMark;
using core::Status;
using Json = nlohmann::json;

constexpr std::chrono::milliseconds kPause(20);
constexpr std::chrono::seconds kFinishLimit(600);  // of a checkpoint that is being written when the job ends
constexpr double kMiB = 1 << 20;

// What `regroup-persist newest DIRECTORY` prints. What it says of damaged ones goes to our standard error.
Result<std::string> ask_newest(const std::string& directory) {
  const std::string program = launcher::find_helper("regroup-persist");
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return core::system_error("pipe", "regroup-persist", errno);
  core::Fd ours(ends[0]), theirs(ends[1]);
  launcher::SpawnSpec spec;
  spec.path = program;
  spec.argv = {"regroup-persist", "newest", directory};
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

Result<std::optional<Resume>> newest_in(const std::string& directory) {
  const auto text = ask_newest(directory);
  if (!text.ok()) return text.status();
  const Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object())
    return core::internal_error(fmt::format("--checkpoint {}: regroup-persist said {:?}", directory, *text));
  if (json.empty()) return std::optional<Resume>();
  const auto unsigned_at = [&](const char* key) {
    return json.contains(key) && json[key].is_number_unsigned();
  };
  if (!unsigned_at("step") || !unsigned_at("seed") || !unsigned_at("shards") || !json["path"].is_string())
    return core::internal_error(fmt::format("--checkpoint {}: regroup-persist said {:?}", directory, *text));
  return std::optional(Resume{json.value("path", ""), json.value("step", core::Step{0}),
                              json.value("seed", std::uint64_t{0}), json.value("shards", std::uint32_t{1})});
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

}  // namespace

Result<CheckpointPlan> prepare_checkpoints(Options* options, const std::string& job,
                                           std::optional<core::FileLock>* lock) {
  CheckpointPlan plan;
  if (options->checkpoint.directory.empty()) return plan;
  std::error_code error;
  plan.directory = fs::absolute(options->checkpoint.directory, error).lexically_normal().string();
  fs::create_directories(plan.directory, error);
  if (error) return core::system_error("mkdir", plan.directory, error.value());
  auto taken = core::FileLock::take(plan.directory + "/LOCK",
                                    fmt::format("job {} (process {} on {})", job, ::getpid(), host_name()));
  if (!taken.ok()) return Status(taken.code(), "--checkpoint " + taken.status().message());
  lock->emplace(std::move(*taken));
  auto resume = newest_in(plan.directory);
  if (!resume.ok()) return resume.status();
  plan.resume = std::move(*resume);
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

Checkpoints::Checkpoints(boost::asio::io_context& loop, CheckpointPlan plan,
                         std::function<const core::Arena&()> arena, Say say, bool quiet)
    : plan_(std::move(plan)),
      arena_(std::move(arena)),
      say_(std::move(say)),
      quiet_(quiet),
      loop_(loop),
      timer_(loop) {}

Checkpoints::~Checkpoints() {
  if (process_) process_->abandon();
}

void Checkpoints::start() {
  if (plan_.resume && !quiet_)
    say_(fmt::format("the job goes on after step {}, from {}", plan_.resume->step, plan_.resume->path));
  if (plan_.every > 0) wait_again();
}

void Checkpoints::wait_again() {
  timer_.expires_after(kPause);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) poll();
  });
}

void Checkpoints::poll() {
  const core::Arena& arena = arena_();
  const bool there = arena.mapped() && !arena.save_area().empty();
  const auto mark = there ? SaveMark::unpack(arena.save_word().load(std::memory_order_acquire)) : SaveMark{};
  if (!process_ && mark.phase == SaveMark::Phase::kReady) write(mark.step);
  if (process_) return;  // its end goes on
  if (then_) return std::exchange(then_, {})();
  wait_again();
}

void Checkpoints::finish(std::function<void()> then) {
  then_ = std::move(then);
  if (!process_) return poll();
  timer_.expires_after(kFinishLimit);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error && process_) process_->kill();  // the disk hangs: the checkpoint before stays
  });
}

// The member's own, with what only we know. The arena is as the member left it, who may be dead by now.
Result<std::string> Checkpoints::description(core::Step step) const {
  const std::span<std::byte> area = arena_().save_area();
  core::SaveHeader header{};
  std::memcpy(&header, area.data(), sizeof header);
  if (header.offset > area.size() || header.bytes > area.size() - header.offset)
    return core::internal_error("the snapshot's description is damaged");
  const auto* text = reinterpret_cast<const char*>(area.data()) + header.offset;
  Json json = Json::parse(text, text + header.bytes, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("step") || json["step"] != step)
    return core::internal_error("the snapshot's description is damaged");
  if (json.contains("error")) return Status(core::Code::kResourceExhausted, json["error"].dump());
  json["directory"] = plan_.directory;
  json["uuid"] = fmt::format("{}-{}", plan_.job, attempts_);
  json["job"] = plan_.job;
  json["seed"] = plan_.seed;
  json["shards"] = plan_.shards;
  json["keep_last"] = plan_.keep_last;
  json["keep_every"] = plan_.keep_every;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void Checkpoints::write(core::Step step) {
  ++attempts_;
  const auto text = description(step);
  launcher::SpawnSpec spec;
  spec.path = launcher::find_helper("regroup-persist");
  spec.argv = {"regroup-persist", "write", std::to_string(launcher::kInheritedFd)};
  spec.inherited = arena_().memfd();
  acknowledged_ = false;
  error_.clear();
  auto started = !text.ok() ? Result<std::shared_ptr<launcher::PipedProcess>>(text.status())
                            : launcher::PipedProcess::start(
                                  loop_, std::move(spec),
                                  {[this](std::string_view line, bool error) {
                                     if (!error) acknowledged_ |= line == std::to_string(writing_);
                                     if (error) error_ += (error_.empty() ? "" : "; ") + std::string(line);
                                   },
                                   [this](int wait_status) { written(wait_status); }});
  if (!started.ok()) {
    say_(fmt::format("the checkpoint of step {} failed: {}", step, started.status().message()));
    return free_area(step);
  }
  writing_ = step;
  bytes_ = arena_().spec().snapshot_bytes;
  since_ = core::SystemClock().now();
  arena_().save_word().store(SaveMark{SaveMark::Phase::kTaken, step}.pack(), std::memory_order_release);
  process_ = *started;
  process_->feed(*text + "\n");
}

void Checkpoints::free_area(core::Step step) {
  arena_().save_word().store(SaveMark{SaveMark::Phase::kIdle, step}.pack(), std::memory_order_release);
}

core::Step Checkpoints::newest_step() const {
  core::Step newest = 0;
  for (core::SlotIndex slot = 0; slot < arena_().spec().slots; ++slot)
    newest = std::max(newest, arena_().line(slot).step.load(std::memory_order_relaxed));
  return newest;
}

void Checkpoints::written(int wait_status) {
  process_.reset();
  const double seconds = std::chrono::duration<double>(core::SystemClock().now() - since_).count();
  if (!acknowledged_) {
    say_(fmt::format("the checkpoint of step {} failed, the one before stays: {}", writing_,
                     !error_.empty() ? error_
                     : WIFSIGNALED(wait_status)
                         ? fmt::format("regroup-persist: killed by signal {}", WTERMSIG(wait_status))
                         : "regroup-persist ended without a word"));
  } else if (!quiet_) {
    say_(fmt::format("checkpoint of step {}: in {} after {:.2f} s ({:.0f} MiB/s)", writing_, plan_.directory,
                     seconds, static_cast<double>(bytes_) / kMiB / std::max(seconds, 1e-3)));
    if (!error_.empty()) say_(error_);
  }
  if (const core::Step newest = newest_step(); newest >= writing_ + plan_.every && !quiet_)
    say_(fmt::format("the checkpoint due after step {} waited for the disk: step {} is done (--every {})",
                     (writing_ / plan_.every + 1) * plan_.every, newest, plan_.every));
  free_area(writing_);
  poll();
}

}  // namespace regroup::cmd
