// The agent's side of a job of roles.
#include "launcher/job/role_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <utility>
#include <variant>

#include "base/status.h"
#include "launcher/pmi/init_watch.h"
#include "launcher/process/due.h"

namespace regroup::job {
namespace {

// The report of a death on another host arrives so much later, where its cores are busy.
constexpr std::chrono::seconds kNews(2);
// For a store on another host to start, beside the time to reserve its memory.
constexpr std::chrono::seconds kStoreLimit(120);

}  // namespace

RoleJob::RoleJob(agent::Agent& agent, RoleJobOptions options,
                 std::unique_ptr<agent::OtherHosts> others, HeldPorts held)
    : agent_(agent),
      options_(std::move(options)),
      rules_(options_.roles, options_.restart),
      tasks_(tasks_of(options_.roles)),
      held_(std::move(held)),
      news_(agent.loop()),
      local_(agent, options_.helper, node_events()),
      others_(std::move(others)),
      world_(
          world_options(),
          [this](std::uint32_t host) -> agent::Node& {
            return host == 0 ? local_ : others_->node(host - 1);
          },
          world_events()),
      grace_(agent.loop()) {}

agent::NodeEvents RoleJob::node_events() {
  agent::NodeEvents events;
  events.started = [this](std::uint32_t space, const base::Status& status) {
    if (agent_.ending()) return agent_.look_whether_over();
    world_.on_started(space, status);
  };
  events.exited = [this](const process::MemberExit& exit) { agent_.on_member_exit(exit); };
  events.mpi = [this](std::uint32_t host, const pmi::Message& message) {
    world_.on_mpi(host, message);
  };
  events.said = [this](const std::string& text) {
    if (!agent_.ending() && !options_.quiet) agent_.say(text);
  };
  events.used = [this](const std::string& host, const std::string& json, const auto& lives) {
    agent_.add_usage(host, json, lives);
  };
  return events;
}

RoleWorld::Options RoleJob::world_options() const {
  RoleWorld::Options world{{}, options_.hosts, options_.host_of, options_.bindings};
  for (const Role& role : options_.roles) world.counts.push_back(role.count);
  return world;
}

RoleWorld::Events RoleJob::world_events() {
  return {[this](const std::string& text) {
            if (!agent_.ending() && !options_.quiet) agent_.say(text);
          },
          [this](const StartMember& start) { return order_of(start); },
          [this](std::uint32_t rank) { world_.signal(rank, SIGKILL); },
          [this](const base::Status& why) { on_failed_start(why); },
          [this](const std::string& why) { on_init_stuck(why); }};
}

base::Status RoleJob::start() {
  cluster_ = {options_.name, options_.roles, options_.ports, options_.coordinator_port};
  if (cluster_.members.empty()) REGROUP_RETURN_IF_ERROR(hold_here());
  if (others_) {
    others_->serve(
        node_events(), [this](std::size_t host, const base::Status& why) { on_lost(host, why); },
        agent_.out(), agent_.err());
    const std::vector<process::App>& apps = agent_.processes().options().apps;
    for (std::uint32_t app = 0; app < apps.size(); ++app) {
      const process::App one = apps[app];  // the node of this host changes the list
      local_.add_app(app, one);
      for (std::size_t host = 0; host < others_->size(); ++host)
        others_->node(host).add_app(app, one);
    }
  }
  if (options_.parameter_server) REGROUP_RETURN_IF_ERROR(start_parameter_server());
  if (!options_.other_stores.empty()) {
    start_other_stores();  // members start once all stores serve
  } else if (!parameter_server_ || !parameter_server_->resumes()) {
    perform(rules_.start());  // else once the tables are loaded
  }
  return {};
}

void RoleJob::finish(const std::function<void()>& then) {
  const auto leave_others = [this, then] { others_ ? others_->finish(then) : then(); };
  checkpoints() != nullptr ? checkpoints()->finish(leave_others) : leave_others();
}

base::Duration RoleJob::still_needs() const {
  return checkpoints() != nullptr ? checkpoints()->still_needs() : base::Duration::zero();
}

std::string RoleJob::unsaved() const {
  return checkpoints() != nullptr ? checkpoints()->unsaved() : std::string();
}

base::Status RoleJob::start_parameter_server() {
  ParameterServer::Events events;
  events.said = [this](const std::string& text) { agent_.say(text); };
  events.failed = [this](const std::string& why) {
    agent_.say(why + ": ending the job");
    agent_.terminate(1);
  };
  events.over = [this] {
    return agent_.ending() && agent_.processes().running() == 0 &&
           (!others_ || others_->running() == 0);
  };
  events.loaded = [this](const base::Status& status) {
    if (!status.ok()) return agent_.fail_start("--checkpoint: " + status.message());
    if (options_.other_stores.empty() || (other_stores_ && other_stores_->started()))
      start_members();
  };
  if (!options_.other_stores.empty()) {
    events.status = [this](std::string own, const auto& answer) {
      other_stores_ ? other_stores_->status(std::move(own), answer) : answer(own);
    };
    events.others.save = [this](const auto& description, auto then) {
      other_stores_->save(description, std::move(then));
    };
    events.others.version = [this](auto then) { other_stores_->version(std::move(then)); };
    events.resize = [this](std::uint32_t servers, const auto& answer) {
      other_stores_ ? other_stores_->resize(servers, answer)
                    : answer(base::unavailable("the job still starts"));
    };
  }
  REGROUP_ASSIGN_OR_RETURN(
      parameter_server_,
      ParameterServer::start(agent_.loop(), *options_.parameter_server, std::move(events)));
  return {};
}

void RoleJob::start_other_stores() {
  const ParameterServerOptions& own = *options_.parameter_server;
  other_stores_ = std::make_unique<OtherStores>(
      agent_.loop(), own.host_name, options_.other_stores,
      OtherStores::Events{[this](const base::Status& status) { on_stores_started(status); },
                          [this](std::size_t, const std::string& why) { on_store_failed(why); }});
  agent::StartStore order;
  order.seed = own.seed;
  order.bytes = own.bytes;
  order.servers = own.servers;
  order.most_servers = own.most_servers;
  order.hang_timeout = std::chrono::ceil<std::chrono::milliseconds>(own.hang_timeout);
  auto limit = kStoreLimit + std::chrono::seconds(2 * (own.bytes >> 30));
  if (own.checkpoints) {
    const spec::CheckpointPlan& plan = own.checkpoints->plan;
    order.directory = plan.directory;
    order.owner = plan.job;
    if (plan.resume) {
      order.resume = plan.resume->path;
      limit += std::chrono::seconds(60 + 20 * (own.bytes >> 30));
    }
  }
  other_stores_->start(std::move(order), options_.store_addresses, limit);
}

void RoleJob::on_stores_started(const base::Status& status) {
  if (agent_.ending()) return;
  if (!status.ok()) return agent_.fail_start("--ps-hosts: " + status.message());
  if (checkpoints() != nullptr) checkpoints()->others_began(other_stores_->version_at_start());
  if (checkpoints() == nullptr || checkpoints()->ready()) start_members();
}

void RoleJob::start_members() {
  if (!agent_.ending()) perform(rules_.start());
}

void RoleJob::on_store_failed(const std::string& why) {
  if (agent_.ending()) return;
  agent_.say(why + ": ending the job, whose tables there are lost");
  agent_.terminate(1);
}

base::Status RoleJob::hold_here() {
  REGROUP_ASSIGN_OR_RETURN(auto wanted, ports_wanted(options_.roles, {}, 1));
  REGROUP_ASSIGN_OR_RETURN(held_, hold_ports(wanted.front(), kThisHost));
  give_ports(cluster_, {}, {held_.numbers}, {std::string(kThisHost)});
  return {};
}

// A host is lost, and with it its members. The others have its address in their variables, so the
// job ends.
void RoleJob::on_lost(std::size_t host, const base::Status& why) {
  if (agent_.ending()) return agent_.look_whether_over();
  const bool store = host + 1 < stores();
  agent_.say(why.message() +
             (store ? ": ending the job, whose tables there are lost" : ": ending the job"));
  if (store && checkpoints() != nullptr) checkpoints()->on_lost(why);
  agent_.terminate(1);
}

void RoleJob::on_exit(const process::MemberExit& exit) {
  if (agent_.ending()) return;
  if (exit.host.empty()) local_.settle();
  world_.gone(exit.rank);
  const MemberEnd end = end_of(exit);
  const bool waits = rules_.may_follow_another(end) || (!held_back_.empty() && !end.killed);
  if (others_ && waits) return hold_back(end);
  perform(rules_.on_end(end));
  if (rules_.is_final(end.rank) && !stopping_ && !agent_.ending()) world_.left(end.rank, end.what);
  if (stopping_) give_held_back();
}

// A member that has succeeded, or failed for good, is not started again, so the others would wait
// for ever.
void RoleJob::on_init_stuck(const std::string& why) {
  if (agent_.ending() || stopping_) return;
  agent_.say(why + ": ending the job; all members of a job call MPI_Init of one MPI, or none does");
  agent_.terminate(1);
}

// A member that loses its peer in MPI ends, too, and its end on this host may be seen before the
// end of the peer is reported by another host. So ends that may be such consequences wait for
// kNews. A member that was killed from outside is a cause, and is handled before the waiting ends.
void RoleJob::hold_back(const MemberEnd& end) {
  held_back_.push_back(end);
  if (held_back_.size() > 1) return;
  news_.expires_after(kNews);
  news_.async_wait([this](const boost::system::error_code& error) {
    if (!error && process::is_due(news_)) give_held_back();
  });
}

void RoleJob::give_held_back() {
  process::call_off(news_);
  for (const MemberEnd& end : std::exchange(held_back_, {})) {
    if (!agent_.ending()) perform(rules_.on_end(end));
  }
}

// An exit without MPI_Finalize is a failure, as under mpirun, because the others wait for the
// member.
MemberEnd RoleJob::end_of(const process::MemberExit& exit) const {
  MemberEnd end{exit.rank, exit.status(), fmt::format("{} {}", exit.process(), exit.what()),
                world_.standing(exit.rank)};
  if (const auto& abort = world_.abort_of(exit.rank)) {
    if (abort->status == pmi::kInitCannotComplete) {
      end.status = 1;
      end.what = abort->message;
      return end;
    }
    end.status = std::max(1, abort->status & 0xff);
    end.what = fmt::format("{} called MPI_Abort with status {}{}{}", exit.process(), abort->status,
                           abort->message.empty() ? "" : ": ", abort->message);
    return end;
  }
  end.killed = exit.signal != 0 && !is_own_fault(exit.signal);
  if (end.mpi != MemberEnd::Mpi::kInside || exit.signal != 0) return end;
  end.what += " before it called MPI_Finalize";
  if (end.status == 0) end.status = 1;
  return end;
}

void RoleJob::perform(const std::vector<RoleAction>& actions) {
  for (const RoleAction& action : actions) {
    std::visit([this](const auto& one) { perform_one(one); }, action);
  }
}

void RoleJob::perform_one(const StartMember& action) {
  stopping_ = false;
  if (!agent_.ending()) world_.start(action);
}

void RoleJob::perform_one(const StartLater& action) {
  stopping_ = false;
  auto& timer = back_off_.try_emplace(action.rank, agent_.loop()).first->second;
  timer.expires_after(
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(action.after));
  timer.async_wait([this, rank = action.rank](const boost::system::error_code& error) {
    if (!error && !agent_.ending()) perform(rules_.on_due(rank));
  });
}

void RoleJob::perform_one(const StopMembers&) {
  stopping_ = true;
  world_.signal_all(SIGTERM);
  world_.signal_all(SIGCONT);  // a stopped member sees SIGTERM only then
  grace_.expires_after(
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(options_.term_grace));
  grace_.async_wait([this](const boost::system::error_code& error) {
    if (!error && stopping_ && process::is_due(grace_)) world_.signal_all(SIGKILL);
  });
  for (const std::uint32_t rank : world_.renew())
    perform(rules_.on_end({rank, 1, "was not started"}));
}

void RoleJob::perform_one(const EndJob& action) { agent_.terminate(action.status); }

void RoleJob::perform_one(const Tell& action) { agent_.say(action.text); }

std::string RoleJob::stores_of(std::uint32_t rank) const {
  std::vector<StorePlace> places{
      {parameter_server_->gateway_address(), options_.parameter_server->memory_socket}};
  if (other_stores_)
    places.insert(places.end(), other_stores_->places().begin(), other_stores_->places().end());
  return stores_text(places, options_.host_of.empty() ? 0 : options_.host_of[rank]);
}

agent::MemberOrder RoleJob::order_of(const StartMember& start) const {
  agent::MemberOrder order;
  if (start.rank < options_.environments.size())
    order.environment = options_.environments[start.rank];
  order.environment.merge(cluster_environment(cluster_, start.rank));
  if (parameter_server_) order.environment["REGROUP_PS"] = stores_of(start.rank);
  order.environment["REGROUP_RESTART_COUNT"] = std::to_string(start.restarts);
  order.environment["TORCHELASTIC_RESTART_COUNT"] = std::to_string(start.restarts);
  if (start.rank < options_.cores.size()) order.cores = options_.cores[start.rank];
  return order;
}

void RoleJob::on_failed_start(const base::Status& why) {
  if (!agent_.ending()) agent_.fail_start(why);
}

}  // namespace regroup::job
