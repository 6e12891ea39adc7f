// Writes an agent's saves, each by a process of its own; another process then copies each.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "checkpoint/writer/checkpoints.h"
#include "checkpoint/writer/persist_task.h"
#include "launcher/process/app.h"
#include "launcher/process/environment.h"
#include "launcher/process/spawn.h"

namespace regroup::writer {
namespace {

using base::Result;
using base::Status;
using shmem::SaveMark;
using Json = nlohmann::json;

constexpr double kMiB = 1 << 20;

}  // namespace

// The member's description of the save, completed by the agent. The member may have died while
// writing it, so it is parsed as untrusted input.
Result<std::string> Checkpoints::description(proto::Step step) const {
  const std::span<std::byte> area = arena_().save_area();
  const shmem::SaveHeader& header = shmem::save_header(area);
  const std::uint64_t offset = header.offset,
                      bytes = header.bytes;  // read once, since members may change them
  if (offset > area.size() || bytes > area.size() - offset)
    return base::internal_error("the save's description is damaged");
  const auto* text = reinterpret_cast<const char*>(area.data()) + offset;
  Json json = Json::parse(text, text + bytes, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("step") || json["step"] != step)
    return base::internal_error("the save's description is damaged");
  if (json.contains("error")) return base::resource_exhausted(json["error"].dump());
  json["directory"] = plan_.directory;
  json["uuid"] = fmt::format("{}-{}-{}", plan_.job, arena_().spec().node, attempts_);
  json["fenced"] = true;
  json["job"] = plan_.job;
  json["seed"] = plan_.seed;
  json["shards"] = plan_.shards;
  json["keep_last"] = plan_.keep_last;
  json["keep_every"] = plan_.keep_every;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void Checkpoints::write(proto::Step step) {
  ++attempts_;
  const auto text = description(step);
  process::SpawnSpec spec;
  spec.path = process::find_helper("regroup-persist");
  spec.argv = {"regroup-persist", "write", std::to_string(process::kInheritedFd)};
  spec.inherited = arena_().memfd();
  acknowledged_ = false;
  error_.clear();
  auto started = !text.ok() ? Result<std::shared_ptr<process::PipedProcess>>(text.status())
                            : process::PipedProcess::start(
                                  loop_, std::move(spec),
                                  {[this](std::string_view line, bool error) {
                                     if (!error && line.empty()) return on_progress();
                                     if (!error) acknowledged_ |= line == std::to_string(writing_);
                                     if (error)
                                       error_ += (error_.empty() ? "" : "; ") + std::string(line);
                                   },
                                   [this](int wait_status) { on_write_ended(wait_status); }});
  if (!started.ok()) {
    say_(fmt::format("the checkpoint of step {} failed: {}", step, started.status().message()));
    return failed(step, started.status().message());
  }
  writing_ = step;
  bytes_ = arena_().spec().snapshot_bytes;
  since_ = base::SystemClock().now();
  arena_().save_word().store(SaveMark{SaveMark::Phase::kTaken, step}.pack(),
                             std::memory_order_release);
  process_ = *started;
  process_->feed(*text + "\n");
}

// Reports the failure before it frees the area: a member that waits for the area then checks
// whether to save its state again.
void Checkpoints::failed(proto::Step step, const std::string& why) {
  failed_ = step, failure_ = why;
  last_.failed(step);
  free_area(step);
}

// The disk is slow but accepts data, so the time limit begins anew.
void Checkpoints::on_progress() {
  last_.moved();
  if (then_ && !deadline_) end_by(base::SystemClock().now() + kDiskLimit);
}

std::string Checkpoints::unsaved() const {
  const proto::Step have = std::max(committed_, plan_.resume ? plan_.resume->step : 0);
  const proto::Step due = last_.due();
  if (plan_.every == 0 || due <= have) return "";
  const std::string why = hangs_ || unusable_ ? not_locked_why_
                          : failed_ > have    ? failure_
                                              : "the state was not saved";
  return fmt::format("the checkpoint of step {}, which was due at the end, is not in {}: {}", due,
                     plan_.directory, why);
}

void Checkpoints::free_area(proto::Step step) {
  arena_().save_word().store(SaveMark{SaveMark::Phase::kIdle, step}.pack(),
                             std::memory_order_release);
  if (last_.requested()) shmem::ring_all(arena_());
}

void Checkpoints::on_write_ended(int wait_status) {
  process_.reset();
  const double seconds = std::chrono::duration<double>(base::SystemClock().now() - since_).count();
  const std::string why = acknowledged_       ? ""
                          : !error_.empty()   ? error_
                          : !cut_off_.empty() ? cut_off_
                                              : silent_end(wait_status);
  if (!acknowledged_) {
    say_(fmt::format("the checkpoint of step {} failed, the previous one is kept: {}", writing_,
                     why));
  } else if (bandwidth_ = static_cast<double>(bytes_) / std::max(seconds, 1e-3); !quiet_) {
    say_(fmt::format("checkpoint of step {}: in {} after {:.2f} s ({:.0f} MiB/s{})", writing_,
                     plan_.directory, seconds,
                     static_cast<double>(bytes_) / kMiB / std::max(seconds, 1e-3),
                     host_.empty() ? "" : ", by host " + host_));
    if (!error_.empty()) say_(error_);
  }
  if (const proto::Step newest = last_.newest(); newest >= writing_ + plan_.every && !quiet_)
    say_(
        fmt::format("the checkpoint due after step {} waited for the disk: step {} is done "
                    "(--checkpoint-interval {})",
                    (writing_ / plan_.every + 1) * plan_.every, newest, plan_.every));
  acknowledged_ ? free_area(writing_) : failed(writing_, why);
  last_.wrote();
  if (acknowledged_) committed_ = writing_, copy();
  request_after_writing();
  poll();
}

// Copying delays neither training nor the next checkpoint; a slow second directory misses some.
void Checkpoints::copy() {
  if (plan_.shared.empty()) return;
  copy_again_ = copy_ != nullptr;
  if (copy_) return;
  process::SpawnSpec spec;
  spec.path = process::find_helper("regroup-persist");
  spec.argv = {"regroup-persist",
               "copy",
               plan_.directory,
               plan_.shared,
               plan_.job,
               std::to_string(plan_.keep_last),
               std::to_string(plan_.keep_every)};
  copy_error_.clear(), copy_step_.clear();
  copying_since_ = base::SystemClock().now();
  const auto said = [this](std::string_view line, bool error) {
    if (!error && line.empty()) return on_progress();
    if (!error) copy_step_ = line;
    if (error) copy_error_ += (copy_error_.empty() ? "" : "; ") + std::string(line);
  };
  const auto ended = [this](int wait_status) { on_copy_ended(wait_status); };
  auto started = process::PipedProcess::start(loop_, std::move(spec), {said, ended});
  if (started.ok())
    copy_ = *started;
  else
    say_(fmt::format("no copy in {}: {}", plan_.shared, started.status().message()));
}

void Checkpoints::on_copy_ended(int wait_status) {
  copy_.reset();
  if (wait_status != 0 && copy_error_.empty()) copy_error_ = silent_end(wait_status);
  const double seconds =
      std::chrono::duration<double>(base::SystemClock().now() - copying_since_).count();
  if (wait_status != 0)
    say_(fmt::format("no copy in {}, the previous one is kept: {}", plan_.shared, copy_error_));
  else if (!copy_error_.empty())  // the copy skipped a damaged checkpoint
    say_(host_.empty() ? copy_error_ : fmt::format("host {}: {}", host_, copy_error_));
  if (wait_status == 0 && !copy_step_.empty())
    copy_bandwidth_ = static_cast<double>(arena_().spec().snapshot_bytes) / std::max(seconds, 1e-3);
  if (wait_status == 0 && !copy_step_.empty() && !quiet_)
    say_(fmt::format("checkpoint of step {}: copied to {} after {:.2f} s", copy_step_, plan_.shared,
                     seconds));
  if (copy_again_ && !stopped_) copy();
  poll();
}

}  // namespace regroup::writer
