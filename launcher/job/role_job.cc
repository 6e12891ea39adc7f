// The agent's side of a job of roles.
#include "launcher/job/role_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <utility>
#include <variant>

#include "base/printable.h"
#include "base/status.h"
#include "launcher/pmi/init_watch.h"
#include "launcher/process/due.h"

namespace regroup::job {
namespace {

// The report of a death on another host arrives so much later, where its cores are busy.
constexpr std::chrono::seconds kNews(2);
// For which a member waits in MPI_Init until the user is told.
constexpr std::chrono::seconds kInitNews(10);
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
      grace_(agent.loop()),
      init_news_(agent.loop()),
      kills_(agent.loop(), [this](const std::string& member, const JobRequests::Answer& answer) {
        answer(kill(member));
      }) {}

agent::NodeEvents RoleJob::node_events() {
  agent::NodeEvents events;
  events.started = [this](std::uint32_t space, const base::Status& status) {
    if (agent_.ending()) return agent_.look_whether_over();
    world_.on_started(space, status);
  };
  events.exited = [this](const process::MemberExit& exit) { agent_.on_member_exit(exit); };
  events.mpi = [this](std::uint32_t host, const pmi::Message& message) {
    world_.on_mpi(host, message);
    watch_init();
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
  if (!options_.kill_socket.empty()) REGROUP_RETURN_IF_ERROR(kills_.start(options_.kill_socket));
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
      OtherStores::Events{
          [this](const base::Status& status) { on_stores_started(status); },
          [this](std::size_t store, const std::string& why) { on_store_failed(store, why); }},
      options_.replicas);
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

void RoleJob::on_store_failed(std::size_t store, const std::string& why) {
  if (!agent_.ending() && !goes_on_without(store, why)) agent_.terminate(1);
}

std::string RoleJob::hosts_of(const std::vector<std::size_t>& stores) const {
  std::string out = stores.size() == 1 ? "host" : "hosts";
  for (const std::size_t store : stores)
    out += fmt::format("{} {}", store == stores.front() ? "" : ",", other_stores_->host(store));
  return out;
}

// Those that have not ended for good.
std::vector<std::uint32_t> RoleJob::members_on(std::size_t host) const {
  std::vector<std::uint32_t> out;
  for (std::uint32_t rank = 0; rank < tasks_.size(); ++rank) {
    if (world_.host_of(rank) == host && !rules_.is_final(rank)) out.push_back(rank);
  }
  return out;
}

// The host of a member is lost or ends: the next start of the member is on this host, at an address
// of its own. Others keep the one that they have.
base::Status RoleJob::move_here(std::uint32_t rank) {
  const Task& task = tasks_.at(rank);
  const std::string ran =
      fmt::format("{} {} ran there", options_.roles.at(task.role).name, task.index);
  const auto stays = [&](std::string_view why) {
    return base::unavailable(fmt::format("{}, and {}", ran, why));
  };
  if (rank == 0) return stays("others have its address as MASTER_ADDR");
  if (world_.uses_mpi()) return stays("MPI_COMM_WORLD admits no other process");
  if (rank < options_.environments.size() && !options_.environments[rank].empty())
    return stays("has devices of that host");
  std::vector<std::uint32_t> places(tasks_.size(), 1);
  places[rank] = 0;
  REGROUP_ASSIGN_OR_RETURN(const auto wanted, ports_wanted(options_.roles, places, 2));
  auto held = hold_ports(wanted.front(), "");
  if (!held.ok()) return stays(held.status().message());
  Cluster moved{.job_name = options_.name, .roles = options_.roles};
  give_ports(moved, places, {held->numbers, std::vector<std::uint16_t>(wanted.back().size())},
             {options_.store_addresses.front(), ""});
  cluster_.members.at(rank) = moved.members.at(rank);
  held_for_moved_.push_back(std::move(*held));
  if (rules_.runs(rank) &&
      std::ranges::find(held_back_, rank, &MemberEnd::rank) == held_back_.end())
    leaves_[rank] = world_.host_of(rank);
  world_.move_to_first(rank);
  return {};
}

// A lost host reports no ends of its members.
void RoleJob::end_members_of(std::size_t host) {
  std::vector<std::uint32_t> lost;
  for (const auto& [rank, its] : leaves_) {
    if (its == host) lost.push_back(rank);
  }
  for (const std::uint32_t rank : lost) {
    leaves_.erase(rank);
    const std::string what = fmt::format("was lost with host {} (it runs on host {} from now on)",
                                         options_.hosts[host].name, options_.hosts[0].name);
    if (!agent_.ending())
      perform(rules_.on_end({.rank = rank, .status = 1, .what = what, .killed = true}));
  }
}

// Decides what follows from the loss of a store, and says it. True: the job goes on.
bool RoleJob::goes_on_without(std::size_t store, const std::string& why) {
  if (options_.replicas == 1 || !other_stores_ || !other_stores_->started()) {
    agent_.say(why + ": ending the job, whose tables there are lost");
    return false;
  }
  const StoreReplicas& replicas = other_stores_->replicas();
  const bool known = replicas.is_lost(store);
  if (!known) {
    other_stores_->lose(store, [this](const std::vector<std::uint32_t>& lost) {
      if (!agent_.ending()) parameter_server_->lose_stores(lost);
    });
  }
  const std::vector<std::size_t> gone = replicas.without_copy();
  if (!gone.empty()) {
    agent_.say(fmt::format("{}: ending the job: all {} copies of ranges of {} are lost", why,
                           options_.replicas, hosts_of(gone)));
    return false;
  }
  for (const std::uint32_t rank : members_on(store)) {
    const base::Status moved = move_here(rank);
    if (moved.ok()) continue;
    agent_.say(fmt::format("{}: ending the job: {}", why, moved.message()));
    return false;
  }
  if (!known) {
    agent_.say(fmt::format(
        "{}: its copies of tables are lost; its ranges are served by {}; the job goes on, and "
        "survives the loss of {}",
        why, hosts_of(replicas.partners(store)), base::counted(replicas.spare(), "more host")));
  }
  return true;
}

base::Status RoleJob::hold_here() {
  REGROUP_ASSIGN_OR_RETURN(auto wanted, ports_wanted(options_.roles, {}, 1));
  REGROUP_ASSIGN_OR_RETURN(held_, hold_ports(wanted.front(), kThisHost));
  give_ports(cluster_, {}, {held_.numbers}, {std::string(kThisHost)});
  return {};
}

// A host is lost, and with it its members. The others have its address in their variables, so the
// job ends, unless the host had a store with replicas: its members then run here.
void RoleJob::on_lost(std::size_t host, const base::Status& why) {
  if (agent_.ending()) return agent_.look_whether_over();
  if (host + 1 >= stores()) {
    agent_.say(why.message() + ": ending the job");
  } else {
    if (goes_on_without(host + 1, why.message())) return end_members_of(host + 1);
    if (checkpoints() != nullptr) checkpoints()->on_lost(why);
  }
  agent_.terminate(1);
}

void RoleJob::on_exit(const process::MemberExit& exit) {
  if (agent_.ending()) return;
  if (exit.host.empty()) local_.settle();
  leaves_.erase(exit.rank);
  world_.gone(exit.rank);
  const MemberEnd end = end_of(exit);
  const bool waits = rules_.may_follow_another(end) || (!held_back_.empty() && !end.killed);
  if (others_ && waits) return hold_back(end);
  perform(rules_.on_end(end));
  if (rules_.is_final(end.rank) && !stopping_ && !agent_.ending()) world_.left(end.rank, end.what);
  if (stopping_) give_held_back();
}

// A member that lives without MPI, a server for example, keeps those of other roles in MPI_Init for
// ever. It may also only be slow, so the job goes on, and the user is told once.
void RoleJob::watch_init() {
  if (init_watched_ || !world_.waits_in_init()) return;
  init_watched_ = true;
  init_news_.expires_after(kInitNews);
  init_news_.async_wait([this](const boost::system::error_code& error) {
    if (error || agent_.ending() || stopping_ || options_.quiet) return;
    if (const auto why = world_.waits_in_init())
      agent_.say(*why + ": all members of a job, of whatever role, call MPI_Init, or none does");
  });
}

// A member that has succeeded, or failed for good, is not started again, so the others would wait
// for ever.
void RoleJob::on_init_stuck(const std::string& why) {
  if (agent_.ending() || stopping_) return;
  agent_.say(why + ": ending the job; all members of a job call MPI_Init of one MPI, or none does");
  agent_.terminate(1);
}

// A member that is killed so is lost as one that was killed from outside.
base::Result<std::string> RoleJob::kill(const std::string& member) {
  if (parameter_server_ && member.starts_with("ps:")) return parameter_server_->kill(member);
  REGROUP_ASSIGN_OR_RETURN(const std::uint32_t rank, rank_of(options_.roles, member));
  const std::string name = task_name(options_.roles, tasks_[rank]);
  if (!world_.runs(rank)) {
    return base::unavailable(
        fmt::format("kill-member {}: {} does not run at present", member, name));
  }
  world_.signal(rank, SIGKILL);
  return fmt::format("member {} ({}) is being killed", rank, name);
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
  return stores_text(places, world_.host_of(rank), options_.replicas);
}

agent::MemberOrder RoleJob::order_of(const StartMember& start) const {
  agent::MemberOrder order;
  if (start.rank < options_.environments.size())
    order.environment = options_.environments[start.rank];
  order.environment.merge(cluster_environment(cluster_, start.rank));
  if (parameter_server_) order.environment["REGROUP_PS"] = stores_of(start.rank);
  order.environment["REGROUP_RESTART_COUNT"] = std::to_string(start.restarts);
  order.environment["TORCHELASTIC_RESTART_COUNT"] = std::to_string(start.restarts);
  if (start.rank < options_.cores.size() && !world_.has_moved(start.rank))
    order.cores = options_.cores[start.rank];
  return order;
}

void RoleJob::on_failed_start(const base::Status& why) {
  if (!agent_.ending()) agent_.fail_start(why);
}

}  // namespace regroup::job
