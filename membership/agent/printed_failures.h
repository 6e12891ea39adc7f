// The failures that members of this host have printed, so that equal ones are printed only once.
#pragma once

#include <deque>
#include <set>
#include <string>

#include "proto/control_message.h"
#include "proto/failure.h"

namespace regroup::membership {

class PrintedFailures {
 public:
  // The reply to a failing member. ok: it prints its full report. Else it prints the message
  // instead; an empty message: it prints nothing, because the launcher reports the failure.
  [[nodiscard]] proto::Reply answer(const proto::Failure& failure);
  // Records that a member of an earlier launch of the job has printed this failure.
  void restore(proto::Failure failure);

 private:
  struct Printed {
    proto::Failure failure;
    bool earlier = false;  // printed in an earlier launch
  };
  [[nodiscard]] const Printed* printed(const proto::Failure& failure) const;
  void add(Printed failure);

  std::deque<Printed> printed_;      // the newest ones, without duplicates
  std::set<proto::MemberId> final_;  // members whose failure ends the job
};

}  // namespace regroup::membership
