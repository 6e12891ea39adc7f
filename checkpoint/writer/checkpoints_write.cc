// From a complete save in the arena to a checkpoint and its copy. The mark of the save area goes
// from kReady to kTaken while the save is written, and then to kIdle, which frees the area.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/status.h"
#include "checkpoint/writer/checkpoints.h"
#include "checkpoint/writer/persist_process.h"

namespace regroup::writer {
namespace {

using base::Result;
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

void Checkpoints::set_mark(SaveMark::Phase phase, proto::Step step) {
  arena_().save_word().store(SaveMark{phase, step}.pack(), std::memory_order_release);
}

void Checkpoints::write(proto::Step step) {
  ++attempts_;
  const auto text = description(step);
  const Status started = text.ok()
                             ? writer_.start(step, arena_().spec().snapshot_bytes, arena_().memfd())
                             : text.status();
  if (!started.ok()) {
    say_(fmt::format("the checkpoint of step {} failed: {}", step, started.message()));
    return failed(step, started.message());
  }
  set_mark(SaveMark::Phase::kTaken, step);
  writer_.describe(*text);
}

// Reports the failure before it frees the area: a member that waits for the area then checks
// whether to save its state again.
void Checkpoints::failed(proto::Step step, const std::string& why) {
  failed_ = step, failure_ = why;
  last_.failed(step);
  free_area(step);
}

void Checkpoints::free_area(proto::Step step) {
  set_mark(SaveMark::Phase::kIdle, step);
  if (last_.requested()) shmem::ring_all(arena_());
}

// The disk is slow but accepts data, so the time limit begins anew.
void Checkpoints::on_progress() {
  last_.moved();
  if (then_ && !deadline_) end_by(base::SystemClock().now() + kDiskLimit);
}

void Checkpoints::on_write_ended(const WriteEnd& end) {
  if (end.committed) {
    report_written(end);
    report_late(end.step);
    free_area(end.step);
  } else {
    const std::string why = !end.errors.empty() ? end.errors
                            : !cut_off_.empty() ? cut_off_
                                                : silent_end(end.wait_status);
    say_(fmt::format("the checkpoint of step {} failed, the previous one is kept: {}", end.step,
                     why));
    report_late(end.step);
    failed(end.step, why);
  }
  last_.wrote();
  if (end.committed) {
    committed_ = end.step;
    copy_.on_commit(arena_().spec().snapshot_bytes);
  }
  request_after_writing();
  poll();
}

void Checkpoints::report_written(const WriteEnd& end) {
  if (quiet_) return;
  say_(fmt::format("checkpoint of step {}: in {} after {:.2f} s ({:.0f} MiB/s{})", end.step,
                   plan_.directory, end.seconds, end.bytes_per_second / kMiB,
                   host_.empty() ? "" : ", by host " + host_));
  if (!end.errors.empty()) say_(end.errors);
}

// A save that was due while the disk was busy has been left out.
void Checkpoints::report_late(proto::Step written) {
  const proto::Step newest = last_.newest();
  if (quiet_ || newest < written + plan_.every) return;
  say_(
      fmt::format("the checkpoint due after step {} waited for the disk: step {} is done "
                  "(--checkpoint-interval {})",
                  (written / plan_.every + 1) * plan_.every, newest, plan_.every));
}

void Checkpoints::on_copy_ended(const CopyEnd& end) {
  report_copied(end);
  if (end.outdated && !stopped_) copy_.on_commit(copy_.bytes());
  poll();
}

void Checkpoints::report_copied(const CopyEnd& end) {
  if (end.wait_status != 0)
    return say_(
        fmt::format("no copy in {}, the previous one is kept: {}", plan_.shared, end.errors));
  if (!end.errors.empty())  // the copy skipped a damaged checkpoint
    say_(host_.empty() ? end.errors : fmt::format("host {}: {}", host_, end.errors));
  if (!end.step.empty() && !quiet_)
    say_(fmt::format("checkpoint of step {}: copied to {} after {:.2f} s", end.step, plan_.shared,
                     end.seconds));
}

}  // namespace regroup::writer
