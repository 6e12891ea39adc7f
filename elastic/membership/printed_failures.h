// Which failures of a host's members were printed by one of them: the others need not.
#pragma once

#include <deque>
#include <set>
#include <string>

#include "core/control_message.h"
#include "core/failure.h"

namespace regroup::membership {

class PrintedFailures {
 public:
  // What the member is told: ok, that it prints its report; or the sentence that it prints in place of it,
  // none if the failure is one that the launcher says.
  [[nodiscard]] core::Reply answer(const core::Failure& failure);
  // A member of an earlier launch of the job has printed it.
  void recall(core::Failure failure);

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
