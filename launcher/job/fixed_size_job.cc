// By the rules of Open MPI 5 the first rank that ends abnormally decides the exit status and ends
// all worlds connected to its own. With MPICH's rules (hydra) statuses are or'ed, a signal's status
// is its number, and only a rank that dies inside MPI or of a signal ends the others.
#include "launcher/job/fixed_size_job.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <numeric>
#include <utility>

#include "base/status.h"
#include "launcher/job/finished_watch.h"

namespace regroup::job {
namespace {

constexpr int kHostLost = 1;

}  // namespace

FixedSizeJob::FixedSizeJob(agent::Agent& agent, FixedSizeOptions options,
                           std::unique_ptr<agent::OtherHosts> others)
    : agent_(agent),
      options_(std::move(options)),
      core_slots_(options_.cores.size()),
      apps_(agent.processes().options().apps),
      local_(agent, options_.helper, events()),
      others_(std::move(others)),
      exchange_(exchange_job()),
      world_(options_.world ? options_.world(agent, others_.get()) : nullptr) {}

agent::NodeEvents FixedSizeJob::events() {
  agent::NodeEvents events;
  events.started = [this](std::uint32_t space, const base::Status& status) {
    on_started(space, status);
  };
  events.exited = [this](const process::MemberExit& exit) { agent_.on_member_exit(exit); };
  events.mpi = [this](std::uint32_t host, const pmi::Message& message) { on_mpi(host, message); };
  events.said = [this](const std::string& text) {
    if (!agent_.ending() && !options_.quiet) agent_.say(text);
  };
  events.unsaved = [this](const std::string& what) { unsaved_ = what; };
  events.used = [this](const std::string& host, const std::string& json, const auto& lives) {
    agent_.add_usage(host, json, lives);
  };
  return events;
}

agent::Node& FixedSizeJob::node(std::uint32_t host) {
  return host == 0 ? local_ : others_->node(host - 1);
}

base::Status FixedSizeJob::start() {
  if (others_) {
    others_->serve(
        events(), [this](std::size_t index, const base::Status& why) { on_host_lost(index, why); },
        agent_.out(), agent_.err());
    for (std::uint32_t app = 0; app < apps_.size(); ++app) {
      for (std::uint32_t host = 0; host < options_.hosts.size(); ++host)
        node(host).add_app(app, apps_[app]);
    }
  }
  if (world_) REGROUP_RETURN_IF_ERROR(world_->start());
  open_space(options_.counts, 0, options_.host_of, std::nullopt);
  return {};
}

std::uint32_t FixedSizeJob::living() const {
  return std::accumulate(
      worlds_.begin(), worlds_.end(), 0U,
      [](std::uint32_t sum, const auto& entry) { return sum + entry.second.living; });
}

std::uint32_t FixedSizeJob::living_on(std::uint32_t host) const {
  return static_cast<std::uint32_t>(
      std::count_if(ranks_.begin(), ranks_.end(),
                    [host](const auto& entry) { return entry.second.host == host; }));
}

bool FixedSizeJob::crowded(std::uint32_t host) const {
  const std::uint32_t slots = options_.hosts[host].slots;
  return slots != 0 && living_on(host) > slots;
}

void FixedSizeJob::open_space(const std::vector<std::uint32_t>& counts, std::uint32_t first_app,
                              const std::vector<std::uint32_t>& host_of,
                              std::optional<pmi::Spawn> parent) {
  const std::uint32_t number = spaces_++;
  const std::vector<process::Place> layout =
      layout_ranks(counts, next_member_, first_app, number, host_of);
  World& world = worlds_[number];
  world.living = static_cast<std::uint32_t>(layout.size());
  world.init = pmi::InitWatch(number);
  world.first_app = first_app;
  world.apps = static_cast<std::uint32_t>(counts.size());
  next_member_ += world.living;
  const std::vector<std::size_t> slots = take_slots(layout);
  std::map<std::uint32_t, agent::SpaceOrder> orders;  // by host
  for (const process::Place& place : layout) {
    const std::uint32_t host = host_of.empty() ? 0 : host_of[place.rank];
    ranks_[place.member] = {{number, place.rank}, place.app, host};
    ++world.living_on[host];
    orders[host].members.push_back(order_of(place, slots));
  }
  pmi::OpenSpace space;
  space.space = number;
  space.app_sizes = counts;
  if (parent) space.parent = parent->parent, space.values = parent->values;
  for (const std::size_t slot : slots) {
    if (slot < options_.bindings.size()) space.bindings.push_back(options_.bindings[slot]);
  }
  for (const JobHost& host : options_.hosts) {
    space.slots += host.slots;
    if (several()) space.hosts.push_back(host.name);
  }
  if (several()) space.host_of = host_of;
  for (std::uint32_t host = 0; host < options_.hosts.size(); ++host) orders[host];
  world.starting = static_cast<std::uint32_t>(orders.size());
  world.parent = std::move(parent);
  for (auto& [host, order] : orders) {
    order.space = space;
    order.space.host = host;
    order.space.oversubscribed = crowded(host);
    if (world.parent && find(world.parent->parent)->host == host)
      order.space.spawn = world.parent->request;
    node(host).start(std::move(order));
  }
}

std::vector<std::size_t> FixedSizeJob::take_slots(const std::vector<process::Place>& layout) {
  std::vector<std::size_t> slots;
  if (layout.at(0).space > 0 && (several() || layout.size() > core_slots_.free())) return slots;
  for (const process::Place& place : layout) {
    if (const auto slot = core_slots_.take(place.member)) slots.push_back(*slot);
  }
  return slots;
}

agent::MemberOrder FixedSizeJob::order_of(const process::Place& place,
                                          const std::vector<std::size_t>& slots) const {
  agent::MemberOrder order{place, 1, {}, {}};
  if (!slots.empty()) order.cores = options_.cores.at(slots.at(place.rank));
  if (place.space == 0 && place.rank < options_.environments.size())
    order.environment = options_.environments[place.rank];
  if (place.space == 0 && place.rank < options_.threads.size())
    order.threads = options_.threads[place.rank];
  return order;
}

void FixedSizeJob::on_started(std::uint32_t space, const base::Status& status) {
  if (agent_.ending()) return agent_.look_whether_over();
  const auto found = worlds_.find(space);
  if (found == worlds_.end()) return;
  World& world = found->second;
  const bool all = --world.starting == 0;
  if (world.parent && (all || !status.ok())) {
    if (const Rank* parent = find(world.parent->parent))
      node(parent->host).tell(pmi::SpawnDone{world.parent->request, space, status.message()});
    world.parent.reset();
  }
  if (!status.ok()) return agent_.fail_start(status);
  if (all && world.ending) end_alone(space);  // its parent has failed meanwhile
}

void FixedSizeJob::on_host_lost(std::size_t index, const base::Status& why) {
  const bool writes = !options_.host_of.empty() && options_.host_of[0] == index + 1;
  if (writes && completed() && world_->keeps_checkpoints() && unsaved_.empty())
    unsaved_ = writer_lost(others_->name(index), why);
  on_lost(why);
}

// The members of the host have ended or cannot be reached.
void FixedSizeJob::on_lost(const base::Status& why) {
  if (agent_.ending()) return agent_.look_whether_over();
  agent_.say(why.message() + ": ending the job");
  agent_.terminate(completed().value_or(kHostLost));
}

void FixedSizeJob::finish(const std::function<void()>& then) {
  const auto others = [this, then] { others_ ? others_->finish(then) : then(); };
  world_ ? world_->finish(others) : others();
}

void FixedSizeJob::on_notice(base::TimePoint deadline) {
  if (world_) world_->on_notice(deadline);
}

base::Duration FixedSizeJob::still_needs() const {
  return world_ ? world_->still_needs() : base::Duration::zero();
}

// The training is complete, but the status of a rank that ended before still counts.
std::optional<int> FixedSizeJob::completed() const {
  const auto done = world_ ? world_->completed() : std::nullopt;
  return done ? std::optional(status_ != 0 ? status_ : *done) : std::nullopt;
}

std::string FixedSizeJob::unsaved() const {
  if (!unsaved_.empty()) return unsaved_;
  return world_ ? world_->unsaved() : std::string();
}

// Uses free slots first, host by host, then adds one member per host in turn.
std::vector<std::uint32_t> FixedSizeJob::hosts_for(std::uint32_t members) const {
  std::vector<std::uint32_t> out;
  if (!several()) return out;
  for (std::uint32_t host = 0; host < options_.hosts.size() && out.size() < members; ++host) {
    const std::uint32_t taken = living_on(host);
    const std::uint32_t slots = options_.hosts[host].slots;
    const std::size_t free = slots > taken ? slots - taken : 0;
    out.insert(out.end(), std::min(free, members - out.size()), host);
  }
  for (std::uint32_t next = 0; out.size() < members; ++next) {
    const auto host = static_cast<std::uint32_t>(next % options_.hosts.size());
    if (options_.hosts[host].slots > 0) out.push_back(host);
  }
  std::sort(out.begin(), out.end());
  return out;
}

// The failed rank is reported before the World reports its loss.
void FixedSizeJob::on_exit(const process::MemberExit& exit) {
  settle_exit(exit);
  if (world_) world_->on_exit(exit);
}

void FixedSizeJob::settle_exit(const process::MemberExit& exit) {
  if (exit.host.empty()) local_.settle();
  const auto found = ranks_.find(exit.member);
  if (agent_.ending() || found == ranks_.end()) return;
  const Rank rank = found->second;
  if (exit.normal() && rank.process.space == 0) tell_exit(exit);
  const bool decided = decides(exit, rank);
  // As Open MPI 5 with --with-ft: a signal never decides the exit status, an exit code always does.
  const bool survived = decided && options_.fault_tolerant && exit.signal != 0;
  const pmi::MemberGone gone{rank.process, exit.code, exit.signal, survived};
  node(rank.host).tell(gone);
  // The first host keeps the published names, and what waits for some.
  if (rank.host != 0 && !survived) node(0).tell(gone);
  for (std::uint32_t host = 0; survived && host < options_.hosts.size(); ++host) {
    if (host != rank.host) node(host).tell(gone);
  }
  const auto why = worlds_[rank.process.space].init.ended(
      rank.process.rank, fmt::format("{} {}", exit.process(), exit.what()));
  if (decided && !survived) {
    end(exit, rank);
  } else if (why) {
    end_init(rank.process.space, *why, std::max(1, exit.status()));
  } else if (survived && ranks_.size() > 1) {
    agent_.say(fmt::format("{} {} {}: the other ranks continue", pmi::name_of(rank.process),
                           exit.process(), exit.what()));
  } else if (options_.compat == spec::Compat::kMpich) {
    status_ |= exit.code;
  }
  forget(exit.member);
  if (ranks_.empty()) agent_.end(status_);
}

// Ranks that serve their World themselves read the file while they wait for other ranks. Best
// effort: without it they wait as long as for any rank.
void FixedSizeJob::tell_exit(const process::MemberExit& exit) {
  const std::string& path = agent_.processes().options().exits_file;
  if (path.empty()) return;
  if (!exits_.valid())
    exits_ = base::Fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  const std::string line = fmt::format("{} {}\n", exit.rank, exit.pid);
  [[maybe_unused]] const ssize_t written = ::write(exits_.get(), line.data(), line.size());
}

// True: the end of this member ends its world.
bool FixedSizeJob::decides(const process::MemberExit& exit, const Rank& rank) {
  if (worlds_[rank.process.space].ending) return false;
  if (exit.signal != 0 || rank.inside) return true;
  return exit.code != 0 && options_.compat == spec::Compat::kOpenMpi;
}

void FixedSizeJob::end(const process::MemberExit& exit, const Rank& rank) {
  const bool early = exit.signal == 0 && rank.inside;
  const std::string said = fmt::format("{} {} {}{}", pmi::name_of(rank.process), exit.process(),
                                       exit.what(), early ? " before it called MPI_Finalize" : "");
  // The program knows why, so the message names it.
  const bool by_itself = exit.signal == 0 && !early;
  const std::string what =
      by_itself ? "; it ran " + process::shown(apps_.at(rank.app)) : std::string();
  const bool hydra = options_.compat == spec::Compat::kMpich;
  const int status = hydra                     ? (exit.signal != 0 ? exit.signal : exit.code)
                     : early && exit.code == 0 ? 1
                                               : exit.status();
  end_group(rank.process.space, said, what, status);
}

void FixedSizeJob::end_group(std::uint32_t space, const std::string& said, const std::string& more,
                             int status) {
  const std::set<std::uint32_t> group = connected_groups_.group_of(space);
  if (group.contains(0)) {
    agent_.say(said + (ranks_.size() > 1 ? ": ending the other ranks" : "") + more);
    return agent_.terminate(status);
  }
  agent_.say(said + ": disconnected processes continue" + more);
  if (status_ == 0) status_ = status;
  for (const std::uint32_t one : group) {
    const auto found = worlds_.find(one);
    if (found != worlds_.end() && !found->second.ending) end_alone(one);
  }
}

void FixedSizeJob::end_alone(std::uint32_t space) {
  const auto found = worlds_.find(space);
  if (found == worlds_.end()) return;
  World& world = found->second;
  world.ending = true;
  signal_world(space, SIGTERM);
  signal_world(space, SIGCONT);  // a stopped member handles SIGTERM only after SIGCONT
  world.grace = std::make_unique<boost::asio::steady_timer>(
      agent_.loop(),
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(options_.term_grace));
  world.grace->async_wait([this, space](const boost::system::error_code& error) {
    if (!error) signal_world(space, SIGKILL);
  });
}

void FixedSizeJob::signal_world(std::uint32_t space, int signal) {
  for (const auto& [member, rank] : ranks_) {
    if (rank.process.space == space) node(rank.host).signal(member, signal);
  }
}

void FixedSizeJob::forget(proto::MemberId member) {
  core_slots_.leave(member);
  const auto found = ranks_.find(member);
  if (found == ranks_.end()) return;
  const auto [process, app, host, inside] = found->second;
  ranks_.erase(found);
  const std::uint32_t space = process.space;
  World& world = worlds_[space];
  if (--world.living_on[host] == 0) world.living_on.erase(host);
  if (--world.living > 0 || space == 0) return;
  for (std::uint32_t app = world.first_app; app < world.first_app + world.apps; ++app)
    apps_[app] = {};
  for (std::uint32_t host = 0; host < options_.hosts.size(); ++host) {
    for (std::uint32_t app = 0; app < world.apps; ++app) node(host).drop_app(world.first_app + app);
    node(host).tell(pmi::CloseSpace{space});
  }
  worlds_.erase(space);
  connected_groups_.closed(space);
  exchange_.closed(space);
}

FixedSizeJob::Rank* FixedSizeJob::find(pmi::ProcId process) {
  for (auto& [member, rank] : ranks_) {
    if (rank.process == process) return &rank;
  }
  return nullptr;
}

}  // namespace regroup::job
