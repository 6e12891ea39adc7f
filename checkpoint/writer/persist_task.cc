// A file system that hangs blocks the process, not the event loop.
#include "checkpoint/writer/persist_task.h"

#include <fmt/format.h>

#include <boost/asio/post.hpp>
#include <chrono>
#include <utility>

#include "checkpoint/writer/persist_process.h"
#include "launcher/process/due.h"

namespace regroup::writer {

PersistTask::PersistTask(boost::asio::io_context& loop, std::vector<std::string> words, Wait wait,
                         Events events)
    : wait_(std::move(wait)), events_(std::move(events)), timer_(loop) {
  auto started = start_persist(loop, persist_program(), std::move(words), -1,
                               {[this](std::string_view line, bool error) { on_line(line, error); },
                                [this](int wait_status) { on_ended(wait_status); }});
  if (started.ok()) {
    process_ = *started;
    expect_within(wait_.first);
    return;
  }
  boost::asio::post(loop, [this, waiting = waiting_, why = started.status()] {
    if (*waiting) end(why);
  });
}

PersistTask::~PersistTask() {
  *waiting_ = false;
  if (process_) process_->abandon();
}

void PersistTask::expect_within(base::Duration limit) {
  timer_.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(limit));
  timer_.async_wait([this, limit, waiting = waiting_](const boost::system::error_code& error) {
    if (error || !*waiting || !process::is_due(timer_)) return;
    std::exchange(process_, nullptr)->abandon();
    end(base::deadline_exceeded(fmt::format("{}: no answer for {:g} s", wait_.about,
                                            std::chrono::duration<double>(limit).count())));
  });
}

void PersistTask::on_line(std::string_view line, bool error) {
  if (error) {
    add_error(line, &said_);
  } else if (!line.empty()) {
    text_ = line;
  } else if (events_.alive) {
    events_.alive();
  }
  expect_within(wait_.quiet);
}

void PersistTask::on_ended(int wait_status) {
  process_.reset();
  if (wait_status == 0) return end(text_);
  if (!said_.empty()) return end(base::unavailable(std::exchange(said_, {})));
  end(base::internal_error(silent_end(wait_status)));
}

// Events::done may destroy this task.
void PersistTask::end(const base::Result<std::string>& text) {
  *waiting_ = false;
  timer_.cancel();
  const auto done = events_.done;
  const std::string said = said_;
  done(text, said);
}

}  // namespace regroup::writer
