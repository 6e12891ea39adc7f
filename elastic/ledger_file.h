// The file of a ledger, DIR/ledger.jsonl, as one member sees it that is rank 0: what of it this
// member goes on with, what it keeps under another name, what it refuses. Every call may block as
// long as the file system does: elastic/ledger.h makes them with a deadline. docs/design/ledger.md.
#pragma once

#include <sys/types.h>

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/fd.h"
#include "base/file_lock.h"
#include "base/status.h"
#include "elastic/ledger_format.h"

namespace regroup::elastic {

inline constexpr const char* kLedgerLock = "ledger.lock";  // in the folder of --ledger

// One thread at a time, but for abandon().
class LedgerFile {
 public:
  // The line of a step, with its end. Step 0: none.
  struct Line {
    proto::Step step = 0;
    std::string text;
  };

  // Does not touch the file system. header.first is ignored. `lock_limit`: how long open() waits
  // for the end of another job that writes there. `excluded` says whether the World is over in
  // which this member is rank 0; it is called by the thread that calls write_through().
  LedgerFile(std::string folder, LedgerHeader header, base::Duration lock_limit,
             std::function<bool()> excluded);

  // Makes the lines end with that of step `last`, for which `kept` is needed if it is missing.
  // `kept`: the line of the last step that this member has committed, if there is one. Opens the
  // file if it is not open. Blocks to write.
  // kInvalidArgument: the file is of another run; kRevoked: the World is over, so this member may
  // cut and rename nothing; kUnavailable and is_held(): another job writes there, and has not ended
  // in time; otherwise the file system failed.
  [[nodiscard]] base::Status write_through(proto::Step last, const Line& kept);
  [[nodiscard]] bool ends_with(proto::Step last) const { return file_.valid() && written_ == last; }
  // The step of the last line in the file; empty: not known.
  [[nodiscard]] std::optional<proto::Step> written() const;
  [[nodiscard]] bool is_held() const { return held_; }
  // Cuts what was written of an unfinished line.
  void cut_torn_line();
  // Closes the file and the lock.
  void close();
  // From now on a write_through() that still runs in another thread changes no more of the file
  // than the line that it is about to write, and does not call `excluded`. Any thread; does not
  // wait for the file system.
  void abandon();

 private:
  // The last whole line of a step up to a given one.
  struct Found {
    proto::Step step = 0;
    std::string text;
    off_t end = 0;
  };
  [[nodiscard]] base::Status lock();
  [[nodiscard]] base::Status open(proto::Step last, const Line& kept);
  [[nodiscard]] base::Status open_file();
  [[nodiscard]] base::Status begin(proto::Step first);
  // Gives the file another name. The new one begins with the first line that this member knows.
  [[nodiscard]] base::Status begin_anew(proto::Step last, const Line& kept, const std::string& why);
  [[nodiscard]] base::Status take_over(const LedgerHeader& header, off_t lines, proto::Step last,
                                       const Line& kept);
  [[nodiscard]] base::Status may_change() const;
  [[nodiscard]] base::Status cut(off_t to);
  [[nodiscard]] base::Result<std::string> read(off_t from, off_t to) const;
  [[nodiscard]] base::Result<off_t> size() const;
  // The first line without its end, and where the next one begins; 0: there is no whole line.
  [[nodiscard]] base::Result<std::pair<std::string, off_t>> first_line() const;
  // Searches from the end of the file. `lines`: where the first of them begins.
  [[nodiscard]] base::Result<Found> find(const LedgerHeader& header, off_t lines,
                                         proto::Step last) const;
  [[nodiscard]] base::Status write_at(off_t at, std::string_view text);
  [[nodiscard]] base::Status put(const std::string& text);
  [[nodiscard]] base::Status refused(const std::string& why) const;

  const std::string folder_;
  const std::string path_;
  const base::Duration lock_limit_;
  LedgerHeader header_;
  std::optional<base::FileLock> lock_;
  bool held_ = false;                   // another job had the lock when the wait for it ended
  bool lockable_ = true;                // false: the file system knows no locks
  base::Fd file_;                       // open while this member is rank 0
  off_t end_ = 0;                       // of its last whole line
  std::optional<proto::Step> written_;  // the step of that line
  // Guards the two below.
  mutable std::mutex mutex_;
  std::function<bool()> excluded_;
  bool abandoned_ = false;
};

}  // namespace regroup::elastic
