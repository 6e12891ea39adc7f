// The failures whose reports members of this host have printed, so that equal ones are printed
// once.
#pragma once

#include <deque>
#include <set>
#include <string>

#include "proto/control_message.h"
#include "proto/failure.h"

namespace regroup::membership {

class PrintedFailures {
 public:
  // The reply to a failing member. ok: print the full report. Else print the message in its place;
  // an empty message means that the launcher reports the failure.
  [[nodiscard]] proto::Reply answer(const proto::Failure& failure);
  // A member of an earlier launch of the job has printed this failure.
  void restore(proto::Failure failure);

 private:
  struct Printed {
    proto::Failure failure;
    bool earlier = false;  // by a launch before
  };
  [[nodiscard]] const Printed* printed(const proto::Failure& failure) const;
  void add(Printed failure);

  std::deque<Printed> printed_;      // the newest, each once
  std::set<proto::MemberId> final_;  // members whose failure ends the job
};

}  // namespace regroup::membership
