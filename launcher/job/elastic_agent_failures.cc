// Failure reports of members: each goes to the coordinator, and one member of a host prints its
// traceback.
#include "launcher/job/elastic_agent.h"

#include <fmt/format.h>

namespace regroup::job {

// Accepts the report of the process that joined or, before the join, of any process of the member.
// A member whose output goes to a file of its own prints its traceback there.
void ElasticAgent::on_failure(Link& link, const proto::Message& message) {
  proto::Failure failure = std::get<proto::Failure>(message.body);
  const auto joined = joined_.find(failure.member);
  const pid_t pid = joined != joined_.end()              ? joined->second.pid
                    : link_of(failure.member) != nullptr ? agent_.processes().pid_of(failure.member)
                                                         : link.peer;
  const spec::OutputRequest& output = agent_.processes().options().output;
  proto::Reply answer;
  if (link.peer == 0 || link.peer == pid) {
    // An unhandled exception ends the job only while it begins: on the host that started rank 0,
    // and before any member has joined. A later member may run a program that was changed
    // meanwhile.
    const bool exception = failure.trace != 0;
    failure.final &= !exception || (first_here_ && !joined_any_);
    perform(core_.handle({failure.member}, {message.incarnation, failure}));
    answer = printed_.answer(failure);
    const bool own_file =
        !output.folder.empty() || !output.stderr_pattern.empty() || output.log.any();
    if (own_file && !answer.message.empty()) answer = {};
  }
  link.channel->send({core_.incarnation(), answer});
}

// The member exceeded its memory limit. Its signal alone looks like a kill from outside, which is
// not the member's own failure, so it is reported as one.
void ElasticAgent::on_exceeded_memory(const process::MemberExit& exit) {
  agent_.say(fmt::format("member {} (pid {}) {}", exit.member, exit.pid, exit.what()));
  const proto::Failure failure{
      .member = exit.member, .kind = "memory limit", .message = exit.what()};
  perform(core_.handle({exit.member}, {core_.incarnation(), failure}));
}

}  // namespace regroup::job
