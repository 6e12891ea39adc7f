// The process is killed by its owner alone, which knows how long a disk may be silent.
#include "checkpoint/writer/save_writer.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "checkpoint/writer/persist_process.h"
#include "launcher/process/app.h"

namespace regroup::writer {

WriteStage next_stage(WriteStage stage, WriteEvent event) {
  switch (event) {
    case WriteEvent::kStarted:
      return WriteStage::kWriting;
    case WriteEvent::kPrintedStep:
      return stage == WriteStage::kWriting ? WriteStage::kCommitted : stage;
    case WriteEvent::kEnded:
      return WriteStage::kIdle;
  }
  return stage;
}

SaveWriter::SaveWriter(boost::asio::io_context& loop, std::string program, Events events)
    : program_(std::move(program)), events_(std::move(events)), loop_(loop) {}

SaveWriter::~SaveWriter() {
  if (process_) process_->abandon();
}

base::Status SaveWriter::start(proto::Step step, std::uint64_t bytes, int memfd) {
  errors_.clear();
  REGROUP_ASSIGN_OR_RETURN(
      process_,
      start_persist(loop_, program_, {"write", std::to_string(process::kInheritedFd)}, memfd,
                    {[this](std::string_view line, bool error) { on_line(line, error); },
                     [this](int wait_status) { on_ended(wait_status); }}));
  stage_ = next_stage(stage_, WriteEvent::kStarted);
  step_ = step;
  bytes_ = bytes;
  since_ = base::SystemClock().now();
  return {};
}

void SaveWriter::describe(const std::string& description) { process_->feed(description + "\n"); }

void SaveWriter::kill() {
  if (process_) process_->kill();
}

void SaveWriter::on_line(std::string_view line, bool error) {
  if (error) return add_error(line, &errors_);
  if (line.empty()) return events_.progress();
  if (line == std::to_string(step_)) stage_ = next_stage(stage_, WriteEvent::kPrintedStep);
}

void SaveWriter::on_ended(int wait_status) {
  process_.reset();
  WriteEnd end{.step = step_,
               .committed = stage_ == WriteStage::kCommitted,
               .errors = std::exchange(errors_, {}),
               .wait_status = wait_status};
  stage_ = next_stage(stage_, WriteEvent::kEnded);
  end.seconds = std::chrono::duration<double>(running_for(base::SystemClock().now())).count();
  end.bytes_per_second = static_cast<double>(bytes_) / std::max(end.seconds, 1e-3);
  if (end.committed) bandwidth_ = end.bytes_per_second;
  events_.ended(end);
}

}  // namespace regroup::writer
