// The coordinator's journal: every World that it announced, what the user asked for and the sentences so far,
// so that a successor goes on where it stood. The bytes are in docs/formats/journal.md.
#pragma once

#include <string>

#include "core/fd.h"
#include "core/status.h"
#include "elastic/membership/journal_entry.h"

namespace regroup::cmd {

class JournalFile {
 public:
  // Opens or makes the file and reads it. A record that ends too early, which was never announced, is cut
  // off; kDataLoss for any other damage, kInvalidArgument for another version.
  [[nodiscard]] static core::Result<JournalFile> open(const std::string& path);

  // What was in it at open().
  [[nodiscard]] const membership::Past& past() const { return past_; }
  // Written when it returns ok, and on disk unless it is a sentence: these outlive this process only.
  [[nodiscard]] core::Status append(const membership::JournalEntry& entry);

 private:
  core::Fd fd_;
  std::string path_;
  membership::Past past_;
};

}  // namespace regroup::cmd
