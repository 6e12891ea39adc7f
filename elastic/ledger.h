// The ledger of a member: which samples each committed step has used, a line per step, written
// once. docs/design/ledger.md.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/detached_call.h"
#include "base/status.h"
#include "elastic/ledger_file.h"
#include "elastic/ledger_format.h"

namespace regroup::elastic {

struct LedgerLimits {
  base::Duration answer = std::chrono::seconds(30);  // of the file system, to each call
  // Until another job ends that writes there: members whose launcher is gone go on for 10 s
  // (--orphan-timeout).
  base::Duration lock = std::chrono::seconds(20);
};

// Rank 0 writes. Every member keeps the line of the last step that it has committed, which the next
// rank 0 writes if the one before could not.
//
// A fault of the file system, or its silence, ends the ledger and not the training: it is said once
// on standard error. Used by the training thread only.
class Ledger {
 public:
  // Does not touch the file system. header.first is ignored. `excluded` says whether the World is
  // over in which this member is rank 0; write_through() calls it, in another thread, too.
  Ledger(std::string folder, LedgerHeader header, std::function<bool()> excluded,
         LedgerLimits limits = {});
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  // The line of a step that this member has committed, the last one.
  void keep(LedgerLine line) { kept_ = std::move(line); }
  [[nodiscard]] bool keeps(proto::Step step) const { return kept_ && kept_->step == step; }
  // For rank 0: makes the lines end with that of step `last`, the last one that its World has
  // committed (0: none). Opens the file if it is not open; cuts lines of later steps, which are of
  // an earlier attempt of the job. If lines of earlier steps are missing there, keeps that file
  // under another name and begins a new one. Blocks to write, at most limits.answer.
  // kInvalidArgument: this member has committed no step yet, and the file is of another run.
  // kUnavailable: it has committed none, and another job writes there, which may end. kRevoked: the
  // World is over, and this member may change no file.
  [[nodiscard]] base::Status write_through(proto::Step last);
  // This member is not rank 0 (any more): another one writes from now on.
  void close();

 private:
  // Runs file work with the deadline.
  [[nodiscard]] base::Status run(const std::function<base::Status(LedgerFile&)>& work);
  // Whether another job had the lock.
  [[nodiscard]] bool is_held(const base::Status& status) const;
  void end_with(const base::Status& cause, proto::Step last);

  const std::string path_;
  const LedgerLimits limits_;
  std::optional<LedgerLine> kept_;
  std::shared_ptr<LedgerFile> file_;  // null: the ledger of this member has ended
  base::DetachedWorker worker_;       // a new thread for each line would take three times as long
  bool open_ = false;                 // write_through() was called after close()
};

}  // namespace regroup::elastic
