// Watches members that have called finish() and whose processes do not exit, mostly because of a
// live thread.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "proto/message.h"
#include "proto/world.h"
#include "shmem/arena.h"

namespace regroup::job {

// True: this host has members of the World, and all of them have agreed in finish() that training
// is over. Their exit statuses do not change that result.
[[nodiscard]] bool all_finished(const shmem::Arena& arena);

// kInvalidArgument: the rank in that slot has finished, and a World of fixed size is formed once
// only.
[[nodiscard]] base::Status check_first_world(const shmem::Arena& arena, proto::SlotIndex line,
                                             proto::MemberId rank);

// The text of AgentJob::unsaved() when the host that writes checkpoints is lost after finish().
[[nodiscard]] std::string writer_lost(const std::string& host, const base::Status& why);

// Collects the result of training from agents and Worlds: finish() commits for all members or for
// none.
class TrainingEnd {
 public:
  // `ending`: the job is being ended, so the statuses of its members do not count.
  void hear(const proto::Body& said, bool ending);
  // The first status of a member that ended after finish() that is not 0, or 0; nothing before
  // finish().
  [[nodiscard]] std::optional<int> status() const { return status_; }

  // The host is lost; it may have been about to write the last checkpoint.
  void lose(proto::NodeId node, const std::string& host, const base::Status& why);
  std::string unsaved;  // AgentJob::unsaved() of another host

 private:
  proto::NodeId writer_ = 0;  // where rank 0 was when training ended
  std::optional<int> status_;
};

class FinishedWatch {
 public:
  explicit FinishedWatch(base::Duration limit) : limit_(limit) {}  // 0: report no member
  struct Finished {
    proto::MemberId member = 0;
    pid_t pid = 0;
  };
  // `finished`: the finished members whose processes live now. Returns a sentence, once, for each
  // of them that has been in these lists for as long as the limit, with what keeps its process
  // alive.
  [[nodiscard]] std::vector<std::string> look(base::TimePoint now,
                                              const std::vector<Finished>& finished);
  // A finished member has exited; the first status other than 0 counts.
  void ended(int status) { status_ = status_ != 0 ? status_ : status; }
  [[nodiscard]] int status() const { return status_; }

 private:
  struct Seen {
    base::TimePoint since{};
    bool reported = false;
  };
  const base::Duration limit_;
  std::map<proto::MemberId, Seen> seen_;
  int status_ = 0;
};

}  // namespace regroup::job
