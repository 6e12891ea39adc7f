// The coordinator's journal: every World that it announced, what the user asked for and the
// sentences so far, so that a successor goes on where it stood. The bytes are in
// docs/reference/formats/journal.md.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/fd.h"
#include "base/status.h"
#include "membership/coordinator/journal_entry.h"

namespace regroup::job {

class JournalFile {
 public:
  // Opens or makes the file and reads it. A record that ends too early, which was never announced,
  // is cut off; kDataLoss for any other damage, kInvalidArgument for another version.
  [[nodiscard]] static base::Result<JournalFile> open(const std::string& path);

  // What was in it at open().
  [[nodiscard]] const membership::JournaledState& past() const { return past_; }
  // What is in it now, also if its path is gone: others have written, too.
  [[nodiscard]] base::Result<membership::JournaledState> written() const;
  // Written when it returns ok, and on disk unless it is a sentence or a row of failures: these
  // outlive this process only. What could not be written whole is cut off, so that others can
  // follow it.
  [[nodiscard]] base::Status append(const membership::JournalEntry& entry);

 private:
  [[nodiscard]] base::Status cut();

  base::Fd fd_;
  off_t whole_ = 0;  // bytes, up to the last record written
  bool torn_ = false;
  std::string path_;
  membership::JournaledState past_;
};

}  // namespace regroup::job
