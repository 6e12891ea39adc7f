// Members that have finished, and whose processes do not end: a thread that is left, as a rule.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/arena.h"
#include "core/clock.h"
#include "core/message.h"
#include "core/world.h"

namespace regroup::cmd {

// All members of the World that are on this host, at least one, have agreed that training is over: what their
// processes do then says nothing of it.
[[nodiscard]] bool all_finished(const core::Arena& arena);

// kInvalidArgument: the rank on that line has finished, and a job whose agents serve a World of fixed size
// forms no other.
[[nodiscard]] core::Status check_first_world(const core::Arena& arena, core::SlotIndex line,
                                             core::MemberId rank);

// What agents, and Worlds, tell of that: finish() commits for all members or for none.
class TrainingEnd {
 public:
  // `ending`: the job is being ended, and members with it: their statuses say nothing.
  void hear(const core::Body& said, bool ending);
  // The first status of a member that ended after finish() that is not 0, or 0; nothing before finish().
  [[nodiscard]] std::optional<int> status() const { return status_; }

  // Of a host that is lost: it may have been about to write.
  void lose(core::NodeId node, const std::string& host, const core::Status& why);
  std::string unsaved;  // AgentJob::unsaved() of another host

 private:
  core::NodeId writer_ = 0;  // where rank 0 was when training ended
  std::optional<int> status_;
};

class FinishedWatch {
 public:
  explicit FinishedWatch(core::Duration limit) : limit_(limit) {}  // 0: nobody is told of
  struct Finished {
    core::MemberId member = 0;
    pid_t pid = 0;
  };
  // Given those of now whose processes live: what is to be said of those that have been among them for as
  // long as the limit, once of each, with what keeps it.
  [[nodiscard]] std::vector<std::string> look(core::TimePoint now, const std::vector<Finished>& finished);
  // Such a member has ended; the first status that is not 0 counts.
  void ended(int status) { status_ = status_ != 0 ? status_ : status; }
  [[nodiscard]] int status() const { return status_; }

 private:
  struct Seen {
    core::TimePoint since{};
    bool reported = false;
  };
  const core::Duration limit_;
  std::map<core::MemberId, Seen> seen_;
  int status_ = 0;
};

}  // namespace regroup::cmd
