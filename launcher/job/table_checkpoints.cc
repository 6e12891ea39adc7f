// The agent waits for nothing here: a process that gives no sign for kSilence is killed.
#include "launcher/job/table_checkpoints.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "checkpoint/writer/persist_process.h"
#include "launcher/process/due.h"

namespace regroup::job {
namespace {

using base::Status;

constexpr std::chrono::seconds kSilence{60};  // between two signs of life

std::chrono::steady_clock::duration on_steady(base::Duration duration) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(duration);
}

}  // namespace

TableCheckpoints::TableCheckpoints(boost::asio::io_context& loop, TableCheckpointOptions options,
                                   Events events)
    : loop_(loop),
      options_(std::move(options)),
      events_(std::move(events)),
      silence_(loop),
      period_(loop),
      loaded_(!options_.plan.resume),
      newest_(options_.plan.resume ? options_.plan.resume->step : 0),
      saved_version_(events_.version()) {}

TableCheckpoints::~TableCheckpoints() {
  if (process_) process_->abandon();
}

void TableCheckpoints::load(std::function<void(const Status&)> loaded) {
  const collective::ps::TablePart& part = options_.part;
  std::vector<std::string> words{"load-tables", options_.memory, options_.plan.resume->path};
  if (part.of > 1) {
    for (const std::uint32_t number : {part.number, part.of, part.shards})
      words.push_back(std::to_string(number));
  }
  run(std::move(words), "", [this, loaded = std::move(loaded)](const Status& status) {
    saved_version_ = events_.version();
    loaded_ = status.ok();
    loaded(status);
  });
}

void TableCheckpoints::prepare(std::function<void(const Status&)> ready) {
  const spec::CheckpointPlan& plan = options_.plan;
  run({"owner", plan.directory, plan.job}, "",
      [this, ready = std::move(ready)](const Status& status) mutable {
        if (!status.ok()) {
          return ready(
              Status(status.code(),
                     fmt::format(
                         "--checkpoint {}: expected a directory that all hosts with a store share, "
                         "got another one here: {}",
                         options_.plan.directory, status.message())));
        }
        options_.plan.resume ? load(std::move(ready)) : ready({});
      });
}

void TableCheckpoints::save_part(const std::string& description, Saved then) {
  if (process_) return then(base::unavailable("its part of a checkpoint is still being written"));
  run({"save-tables", options_.memory}, description + "\n",
      [then = std::move(then), version = events_.version()](const Status& status) {
        status.ok() ? then(std::to_string(version)) : then(status);
      });
}

void TableCheckpoints::others_began(std::uint64_t version) {
  others_began_ = true;
  saved_others_ = version;
}

void TableCheckpoints::start() {
  if (options_.plan.every > 0) wait_period();
}

void TableCheckpoints::wait_period() {
  period_.expires_after(on_steady(options_.period));
  period_.async_wait([this](const boost::system::error_code& error) {
    if (error || !process::is_due(period_)) return;
    wait_period();
    if (busy_ || !ready()) return;
    find_changes([this](bool changed) {
      if (changed && !busy_ && !over_) save([](const auto&) {});
    });
  });
}

void TableCheckpoints::save(Saved saved) {
  next_.push_back(std::move(saved));
  if (!busy_) write();
}

void TableCheckpoints::find_changes(const std::function<void(bool)>& then) {
  if (!events_.others.version || events_.version() != saved_version_)
    return then(events_.version() != saved_version_);
  events_.others.version([this, then](std::optional<std::uint64_t> version) {
    then(!version || version != saved_others_);
  });
}

void TableCheckpoints::finish(const std::function<void()>& then) {
  process::call_off(period_);
  over_ = true;
  if (options_.plan.every == 0 || !ready()) return then();
  if (busy_) return now_.push_back([this, then](const auto&) { finish(then); });
  if (lost_) return then();
  if (newest_has_base_) return save_last(then);
  asks_others_ = true;  // it may have to save then
  find_changes([this, then](bool changed) {
    asks_others_ = false;
    if (busy_) return finish(then);
    changed ? save_last(then) : then();
  });
}

void TableCheckpoints::on_lost(const Status& why) {
  if (options_.plan.every == 0 || !ready()) return;
  lost_ = true;
  unsaved_ = "the tables are not saved: " + why.message();
}

void TableCheckpoints::save_last(const std::function<void()>& then) {
  last_ = true;
  save([this, then](const base::Result<std::string>& saved) {
    if (!saved.ok()) unsaved_ = "the tables are not saved: " + saved.status().message();
    then();
  });
}

base::Duration TableCheckpoints::still_needs() const {
  return busy_ || asks_others_ ? base::Duration(kSilence) : base::Duration::zero();
}

void TableCheckpoints::write() {
  now_ = std::exchange(next_, {});
  busy_ = true;
  ++attempts_;
  committed_ = no_base_ = false;
  // Never a number that was tried: a writer may have died between its commit and its answer.
  writing_ = std::max(newest_, writing_) + 1;
  writing_version_ = events_.version();
  if (!events_.others.save) {
    return run({"save-tables", options_.memory}, description(0) + "\n",
               [this](const Status& status) { on_written(status); });
  }
  open_parts_ = 2;
  part_error_ = {};
  run({"save-tables", options_.memory}, description(0) + "\n",
      [this](const Status& status) { on_part(status); });
  events_.others.save([this](std::size_t store) { return description(store); },
                      [this](const base::Result<std::uint64_t>& version) {
                        if (version.ok()) writing_others_ = *version;
                        on_part(version.status());
                      });
}

// Nothing is committed before each host has said that its part is on the disk.
void TableCheckpoints::on_part(const Status& status) {
  if (part_error_.ok()) part_error_ = status;
  if (--open_parts_ > 0) return;
  committed_ = false;  // the writer of this store's part has printed the step, too
  join();
}

// After an error: removes the parts that are there. A join that dies may have renamed the stage
// before; there is nothing to remove then.
void TableCheckpoints::join() {
  run({"join-tables"}, description(options_.part.of) + "\n", [this](const Status& joined) {
    if (joined.ok() || committed_ || !part_error_.ok())
      return on_written(part_error_.ok() ? joined : part_error_);
    part_error_ = joined;
    join();
  });
}

std::string TableCheckpoints::description(std::size_t writer) const {
  const spec::CheckpointPlan& plan = options_.plan;
  const bool parts = options_.part.of > 1;
  const nlohmann::json out{{"directory", plan.directory},
                           {"uuid", fmt::format("{}-{}", plan.job, attempts_)},
                           {"step", writing_},
                           {"job", plan.job},
                           {"seed", plan.seed},
                           {"shards", 1},
                           {"keep_last", plan.keep_last},
                           {"keep_every", plan.keep_every},
                           {"base", last_ ? 0 : base_},
                           {"writer", writer},
                           {"writers", parts ? options_.part.of + 1 : 1},
                           {"commit", !parts || (writer == options_.part.of && part_error_.ok())},
                           {"tensors", nlohmann::json::array()}};
  return out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void TableCheckpoints::on_written(const Status& status) {
  base::Result<std::string> answer =
      status.ok() ? base::internal_error("regroup-persist has written nothing") : status;
  if (committed_) {  // what fails after that undoes nothing
    const std::chrono::duration<double> time = base::SystemClock().now() - began_;
    newest_has_base_ = base_ != 0 && !last_;
    newest_ = writing_;
    base_ = no_base_ ? 0 : writing_;
    saved_version_ = writing_version_;
    saved_others_ = writing_others_;
    answer = fmt::format("checkpoint of step {}: in {} after {:.2f} s", newest_,
                         options_.plan.directory, time.count());
    if (!options_.quiet) events_.said(*answer);
    if (!status.ok()) events_.said(status.message());
  } else {
    events_.said(fmt::format("the checkpoint of step {} failed, the previous one is kept: {}",
                             writing_, answer.status().message()));
  }
  busy_ = false;
  for (const Saved& saved : std::exchange(now_, {})) saved(answer);
  if (!busy_ && !next_.empty()) write();
}

void TableCheckpoints::run(std::vector<std::string> words, const std::string& input, Ended ended) {
  errors_.clear();
  silent_ = false;
  ended_ = std::move(ended);
  began_ = base::SystemClock().now();
  process::SpawnSpec spec;
  spec.path = options_.program;
  spec.argv = std::move(words);
  spec.argv.insert(spec.argv.begin(), "regroup-persist");
  spec.kept = options_.descriptors;
  auto started = process::PipedProcess::start(
      loop_, std::move(spec),
      {[this](std::string_view line, bool error) { on_line(line, error); },
       [this](int wait_status) { on_end(wait_status); }});
  if (!started.ok()) {
    const Ended tell = std::exchange(ended_, nullptr);
    return tell(started.status());
  }
  process_ = std::move(*started);
  expect_sign();
  process_->feed(input);
}

void TableCheckpoints::on_line(std::string_view line, bool error) {
  expect_sign();
  if (error) return writer::add_error(line, &errors_);
  if (line == "no base") no_base_ = true;
  if (writing_ > 0 && line == std::to_string(writing_)) committed_ = true;
}

void TableCheckpoints::expect_sign() {
  silence_.expires_after(on_steady(kSilence));
  silence_.async_wait([this](const boost::system::error_code& error) {
    if (error || !process_ || !process::is_due(silence_)) return;
    silent_ = true;
    process_->kill();
  });
}

void TableCheckpoints::on_end(int wait_status) {
  process::call_off(silence_);
  process_.reset();
  Status status;
  if (silent_) {
    status = base::deadline_exceeded(
        fmt::format("regroup-persist gave no sign for {} s and was killed", kSilence.count()));
  } else if (wait_status != 0 || !errors_.empty()) {
    status = base::Status(base::Code::kUnavailable,
                          errors_.empty() ? writer::silent_end(wait_status) : errors_);
  }
  const Ended tell = std::exchange(ended_, nullptr);
  tell(status);
}

}  // namespace regroup::job
