// The file is replaced by a rename, and is on disk before the job starts.
#include "launcher/job/attempts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/detached_call.h"
#include "base/fd.h"
#include "launcher/job/start.h"
#include "launcher/process/run_in_subprocess.h"
#include "launcher/process/time_limit.h"

namespace regroup::job {
namespace {

using membership::Attempt;
using nlohmann::json;

// For the directory; time_limit() may change it.
constexpr std::chrono::seconds kAttemptAnswerLimit(10);

struct AttemptRecord {
  Attempt attempt{0, 0, 0, 0};
  bool running = false;
};

std::string path_in(const std::string& directory) { return directory + "/ATTEMPTS"; }

base::Result<AttemptRecord> plain(const json& value, const std::string& path) {
  AttemptRecord kept;
  const auto number = [&](const char* name, std::uint32_t& out) {
    const bool there =
        value.is_object() && value.contains(name) && value[name].is_number_unsigned();
    if (there) out = value[name].get<std::uint32_t>();
    return there;
  };
  const bool good = number("attempts", kept.attempt.number) &&
                    number("preempted", kept.attempt.preempted) &&
                    number("failed", kept.attempt.failed) && number("killed", kept.attempt.killed);
  if (!good)
    return base::data_loss(fmt::format("{}: malformed: expected numbers of attempts", path));
  kept.running = value.value("running", json()) == json(true);
  return kept;
}

std::string text_of(const AttemptRecord& kept) {
  return json{{"attempts", kept.attempt.number},
              {"preempted", kept.attempt.preempted},
              {"failed", kept.attempt.failed},
              {"killed", kept.attempt.killed},
              {"running", kept.running}}
             .dump() +
         "\n";
}

base::Result<AttemptRecord> read_kept(const std::string& path) {
  std::ifstream file(path);
  if (!file && errno == ENOENT) return AttemptRecord();
  return plain(json::parse(file, nullptr, false), path);
}

base::Status write_kept(const std::string& path, const AttemptRecord& kept) {
  const std::string text = text_of(kept);
  const std::string part = path + ".part";
  base::Fd file(::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file.valid()) return base::system_error("open", part, errno);
  const auto failed = [&](const char* call) {
    const int why = errno;
    ::unlink(part.c_str());
    return base::system_error(call, part, why);
  };
  errno = ENOSPC;  // of a short write
  if (::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return failed("write");
  if (::fsync(file.get()) != 0) return failed("fsync");
  if (std::rename(part.c_str(), path.c_str()) != 0) return failed("rename");
  const std::string folder = std::filesystem::path(path).parent_path();
  const base::Fd opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened.valid() || ::fsync(opened.get()) != 0)
    return base::system_error("fsync", folder, errno);
  return {};
}

// Slurm counts restarts; Grid Engine and LSF only say that this start is one.
std::uint32_t restarts_in(const spec::Environment& environment) {
  const auto value = [&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string() : found->second;
  };
  std::uint32_t count = 0;
  const std::string slurm = value("SLURM_RESTART_COUNT");
  std::from_chars(slurm.data(), slurm.data() + slurm.size(), count);
  const bool again =
      value("RESTARTED") == "1" || value("RESTARTED") == "2" || value("LSB_RESTART") == "Y";
  return count > 0 ? count : again ? 1 : 0;
}

// Runs in a child process: records a new attempt and returns the record.
base::Result<std::string> count_now(const std::string& path) {
  auto kept = read_kept(path);
  if (!kept.ok()) fail(kept.status().message() + ": the count of attempts starts again at 0", 0);
  AttemptRecord now = kept.ok() ? *kept : AttemptRecord();
  if (now.running) ++now.attempt.killed;
  ++now.attempt.number;
  now.running = true;
  REGROUP_RETURN_IF_ERROR(write_kept(path, now));
  return text_of(now);
}

}  // namespace

base::Result<Attempt> count_attempt(const std::string& directory,
                                    const spec::Environment& environment) {
  if (directory.empty()) return Attempt{restarts_in(environment) + 1, 0, 0, 0};
  const std::string path = path_in(directory);
  REGROUP_ASSIGN_OR_RETURN(
      const auto text,
      process::run_in_subprocess([&] { return count_now(path); }, path,
                                 process::time_limit(environment, kAttemptAnswerLimit)));
  const json value = json::parse(text, nullptr, false);
  REGROUP_ASSIGN_OR_RETURN(const auto kept, plain(value, path));
  return kept.attempt;
}

void AttemptLog::record(std::function<void(Attempt&)> count) {
  if (directory_.empty()) return;
  written_ = base::call_detached([count = std::move(count), path = path_in(directory_)] {
    auto kept = read_kept(path);
    base::Status status = kept.status();
    if (status.ok()) {
      kept->running = false;
      count(kept->attempt);
      status = write_kept(path, *kept);
    }
    if (!status.ok()) fail(status.message(), 0);
    return status;
  });
}

void AttemptLog::noticed() {
  record([](Attempt& attempt) { ++attempt.preempted; });
}

void AttemptLog::ended(const agent::Agent& agent) {
  const bool failed = agent.exit_status() != 0;
  if (!agent.noticed()) record([failed](Attempt& attempt) { attempt.failed += failed ? 1 : 0; });
  await();
}

void AttemptLog::failed() {
  record([](Attempt& attempt) { ++attempt.failed; });
  await();
}

void AttemptLog::await() {
  if (written_.valid() && written_.wait_for(kAttemptAnswerLimit) != std::future_status::ready)
    fail(fmt::format("{}: no answer for {} s; it may lack the outcome of this attempt",
                     path_in(directory_), kAttemptAnswerLimit.count()),
         0);
}

}  // namespace regroup::job
