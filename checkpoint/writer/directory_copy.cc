// regroup-persist decides which checkpoint is the newest that the second directory lacks.
#include "checkpoint/writer/directory_copy.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "checkpoint/writer/persist_process.h"

namespace regroup::writer {

CopyStage next_stage(CopyStage stage, CopyEvent event) {
  if (event == CopyEvent::kEnded) return CopyStage::kIdle;
  return stage == CopyStage::kIdle ? CopyStage::kCopying : CopyStage::kOutdated;
}

DirectoryCopy::DirectoryCopy(boost::asio::io_context& loop, const spec::CheckpointPlan& plan,
                             std::string program, Events events)
    : plan_(plan), program_(std::move(program)), events_(std::move(events)), loop_(loop) {}

DirectoryCopy::~DirectoryCopy() {
  if (process_) process_->abandon();
}

void DirectoryCopy::on_commit(std::uint64_t bytes) {
  if (plan_.shared.empty()) return;
  bytes_ = bytes;
  stage_ = next_stage(stage_, CopyEvent::kCommitted);
  if (stage_ != CopyStage::kCopying) return;
  step_.clear();
  errors_.clear();
  since_ = base::SystemClock().now();
  auto started = start_persist(loop_, program_,
                               {"copy", plan_.directory, plan_.shared, plan_.job,
                                std::to_string(plan_.keep_last), std::to_string(plan_.keep_every)},
                               -1,
                               {[this](std::string_view line, bool error) { on_line(line, error); },
                                [this](int wait_status) { on_ended(wait_status); }});
  if (started.ok()) {
    process_ = *started;
    return;
  }
  stage_ = next_stage(stage_, CopyEvent::kEnded);
  events_.say(fmt::format("no copy in {}: {}", plan_.shared, started.status().message()));
}

void DirectoryCopy::kill() {
  if (process_) process_->kill();
}

void DirectoryCopy::on_line(std::string_view line, bool error) {
  if (error) return add_error(line, &errors_);
  if (line.empty()) return events_.progress();
  step_ = line;
}

void DirectoryCopy::on_ended(int wait_status) {
  process_.reset();
  CopyEnd end{.outdated = stage_ == CopyStage::kOutdated,
              .wait_status = wait_status,
              .step = std::exchange(step_, {}),
              .errors = std::exchange(errors_, {})};
  stage_ = next_stage(stage_, CopyEvent::kEnded);
  if (wait_status != 0 && end.errors.empty()) end.errors = silent_end(wait_status);
  end.seconds = std::chrono::duration<double>(running_for(base::SystemClock().now())).count();
  if (wait_status == 0 && !end.step.empty())
    bandwidth_ = static_cast<double>(bytes_) / std::max(end.seconds, 1e-3);
  events_.ended(end);
}

}  // namespace regroup::writer
