// Handles SIGTERM as a preemption notice: the first one requests that the member leave at the next
// step boundary; one that comes more than five seconds later ends the process.
#pragma once

#include "shmem/arena.h"

namespace regroup::elastic {

// While it lives, SIGTERM sets `slot.leave_request`. Has no effect if the program has its own
// handler, or if another TermNotice exists in the process, since a signal handler is process-wide.
class TermNotice {
 public:
  explicit TermNotice(shmem::MemberSlot* slot);  // null: no effect
  ~TermNotice();
  TermNotice(const TermNotice&) = delete;
  TermNotice& operator=(const TermNotice&) = delete;
  // `leaving`: the member is leaving, so later SIGTERMs are ignored.
  void set_leaving(bool leaving);

 private:
  bool installed_ = false;
};

}  // namespace regroup::elastic
