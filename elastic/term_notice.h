// SIGTERM as a notice: the first asks the member to leave at the next step boundary, one that comes
// more than five seconds later does what SIGTERM does.
#pragma once

#include "core/arena.h"

namespace regroup::elastic {

// While it lives a SIGTERM sets `line.leave_request`. Does nothing if the program has a handler of its own.
// At most one at a time in a process (a signal handler is process-wide); a second one does nothing.
class TermNotice {
 public:
  explicit TermNotice(core::MemberSlot* line);  // null: does nothing
  ~TermNotice();
  TermNotice(const TermNotice&) = delete;
  TermNotice& operator=(const TermNotice&) = delete;
  // From now on (or no more) the member does what the first one asked: later ones do nothing.
  void heed(bool heeded);

 private:
  bool installed_ = false;
};

}  // namespace regroup::elastic
