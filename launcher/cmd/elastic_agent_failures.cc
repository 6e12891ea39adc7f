// Members that say how they fail: the coordinator is to know, and one of a host prints the traceback.
#include "launcher/cmd/elastic_agent.h"

#include <fmt/format.h>

namespace regroup::cmd {

// Of the process that has joined, if one has; before that of any that the member has started. A report that
// goes to a file of its own is wanted there.
void ElasticAgent::on_failure(Link& link, const core::Message& message) {
  core::Failure failure = std::get<core::Failure>(message.body);
  const auto joined = joined_.find(failure.member);
  const pid_t pid = joined != joined_.end()              ? joined->second.pid
                    : link_of(failure.member) != nullptr ? agent_.processes().pid_of(failure.member)
                                                         : link.peer;
  const launcher::OutputRequest& output = agent_.processes().options().output;
  core::Reply answer;
  if (link.peer == 0 || link.peer == pid) {
    // An exception that a program can only end by ends a job that begins; rank 0 is started while no other
    // member stays. Where one has joined, the one that fails may have a program that was changed meanwhile.
    const bool exception = failure.trace != 0;
    failure.final &= !exception || (first_here_ && !joined_any_);
    perform(core_.handle({failure.member}, {message.incarnation, failure}));
    answer = printed_.answer(failure);
    const bool own_file = !output.folder.empty() || !output.stderr_pattern.empty();
    if (own_file && !answer.message.empty()) answer = {};
  }
  link.channel->send({core_.incarnation(), answer});
}

// Its signal is that of a member that somebody else killed: this one failed by itself.
void ElasticAgent::on_exceeded_memory(const launcher::MemberExit& exit) {
  agent_.say(fmt::format("member {} (pid {}) {}", exit.member, exit.pid, exit.what()));
  const core::Failure failure{.member = exit.member, .kind = "memory limit", .message = exit.what()};
  perform(core_.handle({exit.member}, {core_.incarnation(), failure}));
}

}  // namespace regroup::cmd
