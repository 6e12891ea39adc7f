// The prefix of each output line of a member.
#pragma once

#include <sys/types.h>

#include <ctime>
#include <string>
#include <string_view>

#include "launcher/process/app.h"
#include "launcher/spec/request.h"

namespace regroup::process {

class Tag {
 public:
  // `stream` is stdout or stderr. The format is that of Open MPI 4: "[1,3]<stdout>:", with the time
  // of ctime() before it; kRank is hydra's. `pid` is the member's.
  Tag(const spec::OutputRequest& request, const Place& place, std::string_view stream,
      pid_t pid = 0);
  [[nodiscard]] bool empty() const { return !timestamp_ && text_.empty(); }
  // The prefix of a line that arrived at `now`; valid until the next call.
  [[nodiscard]] std::string_view at(std::time_t now);

 private:
  bool timestamp_;
  std::string text_;
  std::time_t time_ = -1;  // of timed_
  std::string timed_;
};

}  // namespace regroup::process
