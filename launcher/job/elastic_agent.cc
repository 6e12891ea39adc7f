// Connects AgentCore to sockets, processes and timers. A faulty member affects only itself.
#include "launcher/job/elastic_agent.h"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "base/status.h"
#include "base/values.h"
#include "launcher/process/due.h"
#include "launcher/process/environment.h"
#include "launcher/process/stuck_process.h"
#include "launcher/process/time_limit.h"
#include "membership/membership.h"

namespace regroup::job {
namespace {

// From the end of a session to SIGKILL. An interpreter that has failed takes seconds to end on a
// busy machine, and its exit status is that of the failure; but others wait for the member.
constexpr std::chrono::seconds kLinger(5);
constexpr std::chrono::seconds kTeardown(1);  // most killed processes end sooner
constexpr std::size_t kMostLinks = 4 * proto::kMaxSlots;
constexpr int kNotStarted = 127;
constexpr std::chrono::milliseconds kTransferPollInterval(1);

bool has_any_gpu(const spec::Environment& devices, const std::vector<std::string>& gpus) {
  const auto visible = devices.find("CUDA_VISIBLE_DEVICES");
  return visible != devices.end() && std::ranges::any_of(gpus, [&](const std::string& gpu) {
           return std::ranges::count(base::split(visible->second, ","), gpu) > 0;
         });
}

}  // namespace

void end_job(agent::Agent& agent, const proto::JobDone& done, const process::App& app, bool quiet,
             int doubtful_hosts, proto::Step resumed, base::Duration last) {
  if (agent.ending()) return;
  // An allocator signals all processes of a job: the members got the signal before this process.
  if (done.exit_code == membership::kEndedOnNotice) {
    if (!quiet) agent.say(fmt::format("the job ends: {}", done.reason));
    return agent.on_notice(std::nullopt);
  }
  if (done.exit_code != 0) {
    agent.say(fmt::format("the job failed: {} (exit status {}); it ran {}", done.reason,
                          done.exit_code, process::shown(app)));
  } else if (!quiet) {
    agent.say(fmt::format("the job is over: {}", done.reason));
  }
  if (done.state_lost) return agent.kill_without_state(done.exit_code, doubtful_hosts, resumed);
  if (done.exit_code != 0 && last > base::Duration::zero())
    return agent.end_within(done.exit_code, last);
  agent.kill(done.exit_code);
}

ElasticAgent::ElasticAgent(agent::Agent& agent, ElasticAgentOptions options,
                           std::function<void(const proto::Message&)> send)
    : agent_(agent),
      options_(std::move(options)),
      core_(options_.core),
      listener_(agent.loop(),
                [this](base::Fd socket, pid_t peer) { on_connection(std::move(socket), peer); }),
      core_slots_(options_.cores.size()),
      transfer_timer_(agent.loop()),
      send_(std::move(send)),
      checkpoints_(
          agent.loop(), options_.checkpoints, options_.host,
          [this]() -> const shmem::Arena& { return core_.arena(); },
          [this](const std::string& text) { agent_.say(text); }, options_.quiet),
      finished_(options_.finished_limit),
      watcher_(
          agent.loop(), [this](proto::SlotIndex slot) { on_owner_died(slot); },
          [this](const base::Status& failure) {
            if (!options_.quiet) agent_.say(failure.message());
          }) {}

base::Status ElasticAgent::start() {
  if (options_.transfer_service) {
    options_.transfer_service->attach(
        core_, [this](const membership::AgentEffects& effects) { perform(effects); });
  }
  if (!options_.fixed) process::prefer_promptness();
  if (options_.helper) {
    mpi_ = std::make_unique<MpiLaunches>(
        agent_.loop(), *options_.helper, agent_.processes().options().apps.at(0), options_.slots,
        [this](const std::string& text) {
          if (!agent_.ending() && !options_.quiet) agent_.say(text);
        },
        [this](const proto::Start& start, process::Extras extras) {
          start_member(start, std::move(extras));
        });
  }
  checkpoints_.start();
  return listener_.start(options_.socket);
}

void ElasticAgent::on_coordinator(base::Fd socket, std::int32_t) {
  if (coordinator_) coordinator_->close();
  coordinator_ = std::make_shared<transport::Channel>(
      agent_.loop(), std::move(socket),
      [this](const proto::Message& message) {
        const auto* done = std::get_if<proto::JobDone>(&message.body);
        if (done == nullptr) return on_message(message);
        const auto end = [this, message, done = *done] {
          on_message(message);
          end_job(agent_, done, agent_.processes().options().apps.at(0), options_.quiet);
        };
        // The job failed, but its members still hold the state: it is saved before they are killed.
        done->save_state ? checkpoints_.save_now(end) : end();
      },
      // A restarted coordinator requests by Hello what it missed.
      [](const base::Status&) {});
  coordinator_->start();
  send_ = [this](const proto::Message& message) { coordinator_->send(message); };
}

// Opens the port for state transfers at the first transfer.
void ElasticAgent::on_message(const proto::Message& message) {
  if (options_.fixed) {
    know_ranks();
    if (const auto* over = std::get_if<proto::JobDone>(&message.body)) return fail(over->reason);
  }
  if (const auto* past = std::get_if<proto::Failure>(&message.body)) return printed_.restore(*past);
  if (options_.transfer_service && std::holds_alternative<proto::StartSource>(message.body)) {
    const base::Status status = options_.transfer_service->listen();
    if (!status.ok() && !options_.quiet)
      agent_.say("this host cannot serve state to joining members: " + status.message());
    core_.set_endpoints(options_.transfer_service->endpoints());
  }
  const auto* done = std::get_if<proto::JobDone>(&message.body);
  if (done != nullptr && done->save_state && !options_.host.empty())  // the core kills the members
    return checkpoints_.save_now([this, message] { perform(core_.handle({}, message)); });
  perform(core_.handle({}, message));
  if (std::holds_alternative<proto::Query>(message.body)) poll_finished();
}

// For a job on this host only, whose last member would otherwise wait for a successor.
void ElasticAgent::on_notice(base::TimePoint deadline) {
  checkpoints_.on_notice(deadline);
  if (coordinator_)
    coordinator_->send({core_.incarnation(), proto::NodeUp{proto::NodeId{0}, "this one", 0}});
}

void ElasticAgent::on_connection(base::Fd socket, pid_t peer) {
  if (links_.size() >= kMostLinks) return;
  know_ranks();
  const LinkId id = ++last_link_;
  Link& link = links_.try_emplace(id, agent_.loop()).first->second;
  link.peer = peer;
  link.channel = std::make_shared<transport::Channel>(
      agent_.loop(), std::move(socket),
      [this, id](const proto::Message& message) { on_member_message(id, message); },
      [this, id](const base::Status&) {
        const auto gone = links_.extract(id);
        if (gone && gone.mapped().member) on_member_gone(*gone.mapped().member);
      });
  link.channel->start();
  link.deadline.expires_after(options_.join_deadline);
  link.deadline.async_wait([this, id](const boost::system::error_code& error) {
    if (!error) on_join_deadline(id);
  });
}

// The connection of a member closed: it usually exits now, with a message of its own. A member that
// holds up the others is killed after kLinger; of one that has left them the coordinator decides.
void ElasticAgent::on_member_gone(proto::MemberId member) {
  auto& timer = lingering_.try_emplace(member, agent_.loop()).first->second;
  timer.expires_after(kLinger);
  timer.async_wait([this, member](const boost::system::error_code& error) {
    if (error) return;
    const auto watched = watched_.find(member);
    const bool left =
        watched != watched_.end() && core_.arena().member_slot(watched->second).dead.load() != 0;
    if (left) return;
    const auto effects = core_.on_link_closed(member);
    if (options_.fixed && !effects.empty() && !agent_.ending())
      agent_.say(fmt::format(
          "rank {} closed its session before finish(), and others wait for it: killing it",
          member));
    perform(effects);
  });
}

// The timer's handler may have been queued when the member joined.
void ElasticAgent::on_join_deadline(LinkId id) {
  const auto found = links_.find(id);
  if (found == links_.end() || found->second.member) return;
  found->second.channel->close();
  links_.erase(found);
}

void ElasticAgent::on_member_message(LinkId id, const proto::Message& message) {
  Link& link = links_.at(id);
  if (!link.member && std::holds_alternative<proto::Failure>(message.body))
    return on_failure(link, message);
  if (!link.member) {
    const auto* join = std::get_if<proto::Join>(&message.body);
    if (join == nullptr)
      return link.channel->fail(base::invalid_argument("the first message must be Join"));
    const base::Status status =
        failed_.empty() ? adopt(link, join->member) : base::invalid_argument(failed_);
    if (!status.ok()) {
      link.channel->send({core_.incarnation(), proto::Refused{status.message()}});
      return link.channel->fail(status);
    }
  }
  if (const auto* diverged = std::get_if<proto::Diverged>(&message.body)) {
    const std::string newest = checkpoints_.newest();
    const proto::Diverged full{diverged->member,
                               diverged->why + (newest.empty() ? "" : "; " + newest)};
    return perform(core_.handle({link.member}, {.incarnation = message.incarnation, .body = full}));
  }
  perform(core_.handle({link.member}, message));
  if (const auto found = links_.find(id); found != links_.end() && !failed_.empty())
    release(found->second);
}

// The futex reports the death before the process is reaped: its core slot is free for its
// replacement.
void ElasticAgent::on_owner_died(proto::SlotIndex slot) {
  for (const auto& [member, own_slot] : watched_) {
    if (own_slot == slot) core_slots_.leave(member);
  }
  perform(core_.on_owner_died(slot));
  checkpoints_.on_member_ended();
}

base::Status ElasticAgent::adopt(Link& link, proto::MemberId member) {
  if (const auto owned = watched_.find(member); options_.fixed && owned != watched_.end())
    REGROUP_RETURN_IF_ERROR(check_first_world(core_.arena(), owned->second, member));
  if (link_of(member) != nullptr)
    return base::invalid_argument(
        fmt::format("member {} has joined already: a process joins a job once", member));
  const pid_t started = agent_.processes().pid_of(member);
  if (started != 0 && link.peer != 0 && link.peer != started)
    REGROUP_RETURN_IF_ERROR(watch_joined(member, link.peer));
  link.deadline.cancel();
  link.member = member;
  joined_any_ = true;
  return {};
}

// Watches the process that joined, which need not be the one that was started: its buffers may be
// reused only after its own end.
base::Status ElasticAgent::watch_joined(proto::MemberId member, pid_t pid) {
  if (joined_.contains(member)) return {};
  const int fd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0 && errno == ESRCH) return {};  // gone already
  if (fd < 0)
    return base::system_error("pidfd_open", fmt::format("process {} of member {}", pid, member),
                              errno);
  Joined& joined = joined_.try_emplace(member, agent_.loop()).first->second;
  joined.pid = pid;
  joined.pidfd.assign(fd);
  await_joined(member);
  return {};
}

void ElasticAgent::await_joined(proto::MemberId member) {
  const auto found = joined_.find(member);
  if (found == joined_.end()) return;
  if (auto& pidfd = found->second.pidfd; !process::is_readable(pidfd.native_handle())) {
    return pidfd.async_wait(pidfd.wait_read,
                            [this, member](const boost::system::error_code& error) {
                              if (!error) await_joined(member);
                            });
  }
  const auto exit = found->second.exit;
  joined_.erase(found);
  if (exit) reaped(*exit);
}

void ElasticAgent::on_exit(const process::MemberExit& exit) {
  if (options_.fixed && !knows_ranks_) return;  // no rank has joined
  if (const auto found = joined_.find(exit.member); found != joined_.end()) {
    found->second.exit = exit;
    // What started it (a shell) has ended: the process that joined is an orphan, and its slot is
    // free only after its own end.
    ::syscall(SYS_pidfd_send_signal, found->second.pidfd.native_handle(), SIGKILL, nullptr, 0);
    return;
  }
  reaped(exit);
}

void ElasticAgent::reaped(const process::MemberExit& exit) {
  core_slots_.leave(exit.member);
  killed_.erase(exit.member);
  if (const auto found = watched_.find(exit.member); found != watched_.end()) {
    watcher_.unwatch(found->second);
    const bool finished =
        core_.arena().member_slot(found->second).finished.load(std::memory_order_acquire) != 0;
    if (finished && !agent_.ending()) finished_.ended(exit.status());
    watched_.erase(found);
  }
  if (exit.exceeded_memory > 0 && !agent_.ending()) on_exceeded_memory(exit);
  perform(core_.on_reaped(exit.member, exit.pid, exit.code, exit.signal));
  checkpoints_.on_member_ended();
}

ElasticAgent::Link* ElasticAgent::link_of(proto::MemberId member) {
  const auto found = std::find_if(links_.begin(), links_.end(), [member](const auto& entry) {
    return entry.second.member == member;
  });
  return found == links_.end() ? nullptr : &found->second;
}

void ElasticAgent::perform(const membership::AgentEffects& effects) {
  for (const membership::AgentEffect& effect : effects) {
    std::visit([this](const auto& it) { perform_one(it); }, effect);
  }
  checkpoints_.look_for_arena();
  if (core_.transferring() && !std::exchange(attending_, true)) poll_transfer();
}

void ElasticAgent::poll_transfer() {
  bool more = false;
  if (options_.transfer_service) options_.transfer_service->poll();
  perform(core_.poll_transfer(&more));
  attending_ = core_.transferring();
  if (!attending_) return;
  transfer_timer_.expires_after(more ? std::chrono::milliseconds(0) : kTransferPollInterval);
  transfer_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) poll_transfer();
  });
}

void ElasticAgent::perform_one(const membership::ToCoordinator& effect) {
  if (send_) send_({core_.incarnation(), effect.body});
}

void ElasticAgent::perform_one(const membership::ToMember& effect) {
  if (const Link* link = link_of(effect.member)) {
    int descriptor = effect.pass_memfd ? core_.arena().memfd() : -1;
    if (const auto* line = std::get_if<proto::DeviceLine>(&effect.body);
        line != nullptr && line->line != 0)
      descriptor = device_lines_.at(line->line).get();
    link->channel->send({core_.incarnation(), effect.body}, descriptor);
  }
}

void ElasticAgent::start_member(const proto::Start& start, process::Extras extras) {
  if (agent_.ending()) return;
  extras.environment["REGROUP_RESTART_COUNT"] = std::to_string(start.restart);
  if (options_.core.any_fingerprint) extras.environment["REGROUP_CHECK_STATE"] = "0";
  if (options_.core.leaf_buffers > 0)
    extras.environment["REGROUP_DEVICE_MEMORY"] = std::to_string(options_.core.leaf_buffers);
  extras.environment["REGROUP_MPI_PROGRAM"] = process::find_helper("regroup-mpi");
  writer::add_checkpoint_variables(options_.checkpoints, extras.environment);
  // Another job may have claimed these GPUs meanwhile, or one of them is not healthy.
  const auto usable = [&](std::size_t core_slot) {
    if (core_slot >= options_.environments.size()) return true;
    const spec::Environment& devices = options_.environments[core_slot];
    return !has_any_gpu(devices, start.refused_gpus) && agent_.processes().claim_gpus(devices).ok();
  };
  if (const auto core_slot = core_slots_.take(start.member, usable)) {
    extras.cores = options_.cores[*core_slot];
    if (*core_slot < options_.environments.size())
      extras.environment.insert(options_.environments[*core_slot].begin(),
                                options_.environments[*core_slot].end());
  }
  const base::Status status =
      agent_.processes().start({start.member, start.rank, start.world_size}, std::move(extras));
  if (!status.ok()) {
    core_slots_.leave(start.member);
    const std::string where = options_.host.empty() ? "" : fmt::format("host {}: ", options_.host);
    agent_.say(
        fmt::format("{}member {} could not be started: {}", where, start.member, status.message()));
    return perform(core_.on_reaped(start.member, 0, kNotStarted, 0));
  }
  agent_.release_port();
}

void ElasticAgent::perform_one(const membership::KillMember& effect) {
  if (mpi_ && mpi_->forget(effect.member))
    return perform(core_.on_reaped(effect.member, 0, 0, SIGKILL));
  agent_.processes().signal(effect.member, SIGKILL);
  if (const auto found = joined_.find(effect.member); found != joined_.end()) {
    ::syscall(SYS_pidfd_send_signal, found->second.pidfd.native_handle(), SIGKILL, nullptr, 0);
  }
  if (killed_.try_emplace(effect.member, agent_.loop()).second) await_end(effect.member);
}

void ElasticAgent::await_end(proto::MemberId member) {
  boost::asio::steady_timer& timer = killed_.at(member);
  timer.expires_after(kTeardown);
  timer.async_wait([this, member](const boost::system::error_code& error) {
    if (!error) on_not_ended(member);
  });
}

// A killed process that hangs in the kernel must not delay the others: treat it as dead once it is
// stuck.
void ElasticAgent::on_not_ended(proto::MemberId member) {
  const pid_t pid = process_of(member);
  if (pid == 0) {
    killed_.erase(member);
    return;
  }
  const auto where = process::stuck_in(pid);
  if (!where) return await_end(member);
  const std::string what =
      fmt::format("member {} (pid {}) was killed, but {}", member, pid, process::hangs_in(*where));
  const auto effects = core_.on_stuck(member, what);
  if (!effects.empty() && !agent_.ending())
    agent_.say(what + ": the other members continue without it");
  perform(effects);
}

void ElasticAgent::perform_one(const membership::CloseMember& effect) {
  const auto found = std::find_if(links_.begin(), links_.end(), [&](const auto& entry) {
    return entry.second.member == effect.member;
  });
  if (found == links_.end()) return;
  found->second.channel->close_when_sent();
  links_.erase(found);
}

void ElasticAgent::perform_one(const membership::WatchOwner& effect) {
  watched_[effect.member] = effect.slot;
  const base::Status status = watcher_.watch(
      effect.slot, process::futex_word(core_.arena().member_slot(effect.slot).alive));
  if (!status.ok()) agent_.say(status.message());
}

void ElasticAgent::perform_one(const membership::ReleaseMember& effect) {
  core_.release(effect.slot);
}

void ElasticAgent::perform_one(const membership::Ring& effect) { core_.ring(effect.slot); }

void ElasticAgent::perform_one(const membership::Fetch& effect) {
  if (options_.transfer_service) return options_.transfer_service->fetch(effect.transfer);
  perform(core_.on_fetch_failed("this job has one host"));
}

void ElasticAgent::perform_one(const membership::StopFetch&) {
  if (options_.transfer_service) options_.transfer_service->stop_fetch();
}

void ElasticAgent::perform_one(const membership::CreateDeviceLine& effect) {
  if (devices_ == nullptr) {
    const spec::Environment& environment = agent_.processes().options().apps.at(0).environment;
    DeviceAllocatorOptions options{process::find_helper("regroup-devices"), environment};
    options.answer_limit = process::time_limit(environment, options.answer_limit);
    devices_ = std::make_unique<DeviceAllocator>(agent_.loop(), std::move(options));
  }
  devices_->allocate(
      effect.line.gpu, effect.line.bytes,
      [this, line = effect.line.line](const proto::DeviceMemory& memory, base::Fd descriptor) {
        on_device_memory(line, memory, std::move(descriptor));
      });
}

void ElasticAgent::on_device_memory(proto::DeviceLineId line, const proto::DeviceMemory& memory,
                                    base::Fd descriptor) {
  if (!memory.why.empty())
    return perform(core_.on_no_device_line(line, memory.why, memory.full, memory.device));
  device_lines_[line] = std::move(descriptor);
  perform(core_.on_device_line(line, memory.bytes));
}

// Members that have mapped the memory keep it until they unmap it.
void ElasticAgent::perform_one(const membership::DropDeviceLine& effect) {
  device_lines_.erase(effect.line);
}

void ElasticAgent::perform_one(const membership::Warn& effect) { agent_.say(effect.sentence); }

}  // namespace regroup::job
