// The file that says which samples each committed step has used: a line per step, written once.
// docs/design/ledger.md.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/fd.h"
#include "base/status.h"
#include "elastic/ledger_format.h"

namespace regroup::elastic {

// Rank 0 writes. Every member keeps the line of the last step that it has committed, which the next
// rank 0 writes if the one before could not. The line of a step has the same bytes and the same
// place in the file whichever member writes it, so a member that is excluded and does not know it
// can do no harm.
//
// A fault of the file system ends the ledger and not the training: it is said once on standard
// error. Used by the training thread only.
class Ledger {
 public:
  // Does not touch the file system. header.first is ignored.
  Ledger(std::string folder, LedgerHeader header);

  // The line of a step that this member has committed, the last one.
  void keep(LedgerLine line) { kept_ = std::move(line); }
  [[nodiscard]] bool keeps(proto::Step step) const { return kept_ && kept_->step == step; }
  // For rank 0: makes the lines end with that of step `last`, the last one that its World has
  // committed (0: none). Opens the file if it is not open; cuts lines of later steps, which are of
  // an earlier attempt of the job. If lines of earlier steps are missing there, keeps that file
  // under another name and begins a new one. Blocks to write.
  // kInvalidArgument: this member has committed no step yet, and the file is of another run.
  [[nodiscard]] base::Status write_through(proto::Step last);
  // This member is not rank 0 (any more): another one writes from now on.
  void close() { file_.reset(); }

 private:
  // The last whole line of a step up to a given one.
  struct Found {
    proto::Step step = 0;
    std::string text;
    off_t end = 0;
  };
  [[nodiscard]] base::Status open(proto::Step last);
  [[nodiscard]] base::Status open_file();
  [[nodiscard]] base::Status begin(proto::Step first);
  // Gives the file another name. The new one begins with the first line that this member knows.
  [[nodiscard]] base::Status begin_anew(proto::Step last, const std::string& why);
  [[nodiscard]] base::Status take_over(const LedgerHeader& header, off_t lines, proto::Step last);
  [[nodiscard]] base::Result<std::string> read(off_t from, off_t to) const;
  [[nodiscard]] base::Result<off_t> size() const;
  // The first line without its end, and where the next one begins; 0: there is no whole line.
  [[nodiscard]] base::Result<std::pair<std::string, off_t>> first_line() const;
  // Searches from the end of the file. `lines`: where the first of them begins.
  [[nodiscard]] base::Result<Found> find(const LedgerHeader& header, off_t lines,
                                         proto::Step last) const;
  [[nodiscard]] base::Status update_epochs(const LedgerHeader& found, off_t lines);
  [[nodiscard]] base::Status put(const std::string& text);
  [[nodiscard]] base::Status end_with(const base::Status& cause);
  [[nodiscard]] base::Status refused(const std::string& why) const;

  const std::string folder_;
  const std::string path_;
  LedgerHeader header_;
  std::optional<LedgerLine> kept_;
  base::Fd file_;            // open while this member is rank 0
  off_t end_ = 0;            // of its last whole line
  proto::Step written_ = 0;  // the step of that line
  bool failed_ = false;      // the ledger of this member has ended
};

}  // namespace regroup::elastic
