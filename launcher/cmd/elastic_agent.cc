// The driver around AgentCore. Whatever a member sends or fails to send, only that member is affected.
#include "launcher/cmd/elastic_agent.h"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

namespace regroup::cmd {
namespace {

constexpr std::chrono::seconds kJoinDeadline{10};
constexpr std::size_t kMostLinks = 4 * core::kMaxSlots;
constexpr int kNotStarted = 127;

}  // namespace

ElasticAgent::ElasticAgent(launcher::Agent& agent, ElasticAgentOptions options)
    : agent_(agent),
      options_(std::move(options)),
      core_(options_.core),
      listener_(agent.loop(),
                [this](core::Fd socket, pid_t peer) { on_connection(std::move(socket), peer); }),
      watcher_(agent.loop(), [this](core::SlotIndex slot) { perform(core_.on_line_dead(slot)); }) {}

core::Status ElasticAgent::start() {
  launcher::prefer_promptness();
  return listener_.start(options_.socket);
}

void ElasticAgent::on_coordinator(core::Fd socket, std::int32_t) {
  if (coordinator_) coordinator_->close();
  coordinator_ = std::make_shared<launcher::Channel>(
      agent_.loop(), std::move(socket),
      [this](const core::Message& message) {
        perform(core_.handle({}, message));
        if (const auto* done = std::get_if<core::JobDone>(&message.body)) on_job_done(*done);
      },
      // What it misses until the guardian has restarted it, it asks for with Hello.
      [](const core::Status&) {});
  coordinator_->start();
}

void ElasticAgent::on_job_done(const core::JobDone& done) {
  if (agent_.ending()) return;
  if (done.exit_code != 0) {
    agent_.say(fmt::format("the job failed: {} (exit status {})", done.reason, done.exit_code));
  } else if (!options_.quiet) {
    agent_.say(fmt::format("the job is over: {}", done.reason));
  }
  agent_.kill(done.exit_code);
}

void ElasticAgent::on_connection(core::Fd socket, pid_t peer) {
  if (links_.size() >= kMostLinks) return;
  const auto link = links_.emplace(links_.end(), agent_.loop());
  link->peer = peer;
  link->channel = std::make_shared<launcher::Channel>(
      agent_.loop(), std::move(socket),
      [this, link](const core::Message& message) { on_member_message(link, message); },
      [this, link](const core::Status&) { drop(link); });
  link->channel->start();
  link->deadline.expires_after(kJoinDeadline);
  link->deadline.async_wait([this, link](const boost::system::error_code& error) {
    if (error) return;
    link->channel->close();
    drop(link);
  });
}

void ElasticAgent::on_member_message(Links::iterator link, const core::Message& message) {
  if (!link->member) {
    const auto* join = std::get_if<core::Join>(&message.body);
    if (join == nullptr) return link->channel->fail(core::invalid_argument("the first message must be Join"));
    if (link_of(join->member) != nullptr) {
      link->channel->send(
          {core_.incarnation(), core::Refused{fmt::format("member {} is connected already", join->member)}});
      return link->channel->fail(core::invalid_argument("a second connection of one member"));
    }
    adopt(link, join->member);
  }
  perform(core_.handle({link->member}, message));
}

void ElasticAgent::adopt(Links::iterator link, core::MemberId member) {
  link->deadline.cancel();
  link->member = member;
  const pid_t started = agent_.crew().pid_of(member);
  if (started != 0 && link->peer != 0 && link->peer != started) watch_joined(member, link->peer);
}

// Its buffers may be given away only when it, not just its parent, is gone.
void ElasticAgent::watch_joined(core::MemberId member, pid_t pid) {
  const int fd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0) return;  // gone already
  const auto found = joined_.try_emplace(member, agent_.loop()).first;
  if (found->second.pidfd.is_open()) {
    ::close(fd);
    return;
  }
  found->second.pidfd.assign(fd);
  found->second.pidfd.async_wait(found->second.pidfd.wait_read,
                                 [this, member](const boost::system::error_code& error) {
                                   if (!error) joined_ended(member);
                                 });
}

void ElasticAgent::joined_ended(core::MemberId member) {
  const auto found = joined_.find(member);
  if (found == joined_.end()) return;
  const auto exit = found->second.exit;
  joined_.erase(found);
  if (exit) reaped(*exit);
}

void ElasticAgent::on_exit(const launcher::MemberExit& exit) {
  if (const auto found = joined_.find(exit.member); found != joined_.end()) {
    found->second.exit = exit;
    ::syscall(SYS_pidfd_send_signal, found->second.pidfd.native_handle(), SIGKILL, nullptr, 0);
    return;
  }
  reaped(exit);
}

void ElasticAgent::reaped(const launcher::MemberExit& exit) {
  if (const auto found = watched_.find(exit.member); found != watched_.end()) {
    watcher_.unwatch(found->second);
    watched_.erase(found);
  }
  perform(core_.on_reaped(exit.member, exit.pid, exit.code, exit.signal));
}

ElasticAgent::Link* ElasticAgent::link_of(core::MemberId member) {
  const auto found = std::find_if(links_.begin(), links_.end(),
                                  [member](const Link& link) { return link.member == member; });
  return found == links_.end() ? nullptr : &*found;
}

void ElasticAgent::perform(const membership::AgentEffects& effects) {
  for (const membership::AgentEffect& effect : effects) {
    std::visit([this](const auto& it) { perform_one(it); }, effect);
  }
}

void ElasticAgent::perform_one(const membership::ToCoordinator& effect) {
  if (coordinator_) coordinator_->send({core_.incarnation(), effect.body});
}

void ElasticAgent::perform_one(const membership::ToMember& effect) {
  if (const Link* link = link_of(effect.member)) {
    link->channel->send({core_.incarnation(), effect.body}, effect.pass_memfd ? core_.arena().memfd() : -1);
  }
}

void ElasticAgent::perform_one(const membership::StartMember& effect) {
  if (agent_.ending()) return;
  const core::Start& start = effect.start;
  if (core::Status status = agent_.crew().start({start.member, start.rank, start.world_size}); !status.ok()) {
    agent_.say(fmt::format("member {} could not be started: {}", start.member, status.message()));
    return perform(core_.on_reaped(start.member, 0, kNotStarted, 0));
  }
  agent_.release_port();
}

void ElasticAgent::perform_one(const membership::KillMember& effect) {
  agent_.crew().signal(effect.member, SIGKILL);
  if (const auto found = joined_.find(effect.member); found != joined_.end()) {
    ::syscall(SYS_pidfd_send_signal, found->second.pidfd.native_handle(), SIGKILL, nullptr, 0);
  }
}

void ElasticAgent::perform_one(const membership::CloseMember& effect) {
  const auto found = std::find_if(links_.begin(), links_.end(),
                                  [&](const Link& link) { return link.member == effect.member; });
  if (found == links_.end()) return;
  found->channel->close_when_sent();
  drop(found);
}

void ElasticAgent::perform_one(const membership::WatchLine& effect) {
  watched_[effect.member] = effect.slot;
  const core::Status status =
      watcher_.watch(effect.slot, launcher::futex_word(core_.arena().line(effect.slot).alive));
  if (!status.ok()) agent_.say(status.message());
}

void ElasticAgent::perform_one(const membership::LetGo& effect) { core_.let_go(effect.slot); }

void ElasticAgent::perform_one(const membership::Warn& effect) { agent_.say(effect.sentence); }

}  // namespace regroup::cmd
