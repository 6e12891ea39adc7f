// A hung NFS mount must not stop the training without a word, so one thread does all file work of a
// ledger, and can be left behind.
#include "elastic/ledger.h"

#include <fmt/format.h>

#include <cstdio>
#include <future>

namespace regroup::elastic {

using base::Code;
using base::Status;
using proto::Step;

Ledger::Ledger(std::string folder, LedgerHeader header, std::function<bool()> excluded,
               LedgerLimits limits)
    : path_(folder + "/" + kLedgerFile),
      limits_(limits),
      file_(std::make_shared<LedgerFile>(std::move(folder), std::move(header), limits.lock,
                                         std::move(excluded))) {}

Ledger::~Ledger() { close(); }

Status Ledger::run(const std::function<Status(LedgerFile&)>& work) {
  std::future<Status> done = worker_.call([file = file_, work] { return work(*file); });
  if (done.wait_for(limits_.answer) == std::future_status::ready) return done.get();
  file_->abandon();
  file_.reset();
  const std::chrono::duration<double> limit = limits_.answer;
  return base::deadline_exceeded(
      fmt::format("{}: the file system has not answered for {:g} s", path_, limit.count()));
}

Status Ledger::write_through(Step last) {
  if (!file_ || file_->ends_with(last)) return {};
  open_ = true;
  LedgerFile::Line kept;
  if (kept_) kept = {kept_->step, text_of(*kept_)};
  const Status status =
      run([last, kept](LedgerFile& file) { return file.write_through(last, kept); });
  if (status.ok() || status.code() == Code::kRevoked) return status;
  if (!kept_ && (status.code() == Code::kInvalidArgument || is_held(status)))
    return Status(status.code(), "ledger: " + status.message());
  end_with(status, last);
  return {};
}

bool Ledger::is_held(const Status& status) const {
  return file_ && status.code() == Code::kUnavailable && file_->is_held();
}

void Ledger::end_with(const Status& cause, Step last) {
  const auto written = file_ ? file_->written() : std::nullopt;
  fmt::print(stderr,
             "regroup: ledger: {}; the ledger ends with step {}, the training goes on without\n",
             cause.message(), written.value_or(last - (keeps(last) ? 1 : 0)));
  // Another job's lines may stand where this one's would.
  const bool foreign = cause.code() == Code::kInvalidArgument || is_held(cause);
  if (file_) {
    (void)run([foreign](LedgerFile& file) {
      if (!foreign) file.cut_torn_line();
      return file.close(), Status();
    });
  }
  file_.reset();
}

void Ledger::close() {
  if (file_ && std::exchange(open_, false))
    (void)run([](LedgerFile& file) { return file.close(), Status(); });
}

}  // namespace regroup::elastic
