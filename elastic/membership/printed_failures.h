// The failures whose reports members of this host have printed, so that equal ones are printed once.
#pragma once

#include <deque>
#include <set>
#include <string>

#include "core/control_message.h"
#include "core/failure.h"

namespace regroup::membership {

class PrintedFailures {
 public:
  // The reply to a failing member. ok: print the full report. Else print the message in its place; an empty
  // message means that the launcher reports the failure.
  [[nodiscard]] core::Reply answer(const core::Failure& failure);
  // A member of an earlier launch of the job has printed this failure.
  void restore(core::Failure failure);

 private:
  struct Printed {
    core::Failure failure;
    bool earlier = false;  // by a launch before
  };
  [[nodiscard]] const Printed* printed(const core::Failure& failure) const;
  void add(Printed failure);

  std::deque<Printed> printed_;     // the newest, each once
  std::set<core::MemberId> final_;  // members whose failure ends the job
};

}  // namespace regroup::membership
