// One server at a time for each shard. The store's lock, not this file, keeps two from writing at
// once.
#include "launcher/job/parameter_server.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <span>
#include <utility>

#include "base/descriptor_message.h"
#include "base/printable.h"
#include "base/values.h"
#include "collective/ps/consistency.h"
#include "collective/ps/store.h"
#include "launcher/process/due.h"
#include "launcher/process/environment.h"
#include "launcher/process/signals.h"
#include "launcher/transport/tcp.h"

namespace regroup::job {
namespace {

using collective::ps::ServerMemory;
using collective::ps::StoreMemory;

constexpr std::uint64_t kLanesBytes = 64 << 20;      // of a client
constexpr std::uint64_t kLeastLaneBytes = 10 << 20;  // for 8 MiB of gradients
// How long a server that leaves may take, one that is stopped, for example. Others wait longer for
// its shards.
constexpr std::chrono::seconds kLeave{10};

// The time between two looks for servers that hang.
base::Duration look_period(base::Duration hang_timeout) {
  return std::clamp<base::Duration>(hang_timeout / 8, std::chrono::milliseconds(10),
                                    std::chrono::seconds(1));
}

// N of --role ps=N.
std::string role_text(const ParameterServerOptions& options) {
  if (options.servers == options.most_servers) return std::to_string(options.servers);
  return fmt::format("{}:{}", options.servers, options.most_servers);
}

std::vector<int> descriptors_of(const ServerMemory& memory) {
  std::vector<int> out;
  for (const auto& shard : memory.shards) {
    out.push_back(shard.lanes);
    out.insert(out.end(), shard.segments.begin(), shard.segments.end());
  }
  return out;
}

std::string end_text(int wait_status) {
  if (!WIFSIGNALED(wait_status))
    return fmt::format("exited with code {}", WEXITSTATUS(wait_status));
  const int signal = WTERMSIG(wait_status);
  return fmt::format("was killed by signal {} ({})", signal, process::signal_name(signal));
}

// Only another process sends these signals, and without one regroup-ps does not exit with status 0.
bool is_kill(int wait_status) {
  if (!WIFSIGNALED(wait_status)) return WEXITSTATUS(wait_status) == 0;
  const int signal = WTERMSIG(wait_status);
  return signal == SIGKILL || signal == SIGTERM || signal == SIGINT || signal == SIGHUP;
}

// "0-3,8" of ascending numbers.
std::string short_list(const std::set<std::size_t>& numbers) {
  std::string out;
  for (auto at = numbers.begin(); at != numbers.end();) {
    const std::size_t first = *at;
    std::size_t last = first;
    while (++at != numbers.end() && *at == last + 1) last = *at;
    out += fmt::format("{}{}", out.empty() ? "" : ",", first);
    if (last != first) out += fmt::format("-{}", last);
  }
  return out;
}

// The bytes of a store: {"tables", "free", "log"}; the log and what leads to the rest.
void add_bytes(nlohmann::json& to, const StoreMemory& store) {
  const std::uint64_t used = collective::ps::used_bytes(store);
  const std::uint64_t free = collective::ps::free_bytes(store);
  for (const auto& [kind, bytes] : {std::pair("tables", used), std::pair("free", free),
                                    std::pair("log", store.bytes() - used - free)})
    to[kind] = to.value(kind, std::uint64_t{0}) + bytes;
}

// Whether process `pid` was the last one to attach to the shard.
bool serves(const collective::ps::MappedShard& shard, pid_t pid) {
  return shard.lanes.header().process.load() == static_cast<std::uint64_t>(pid);
}

// What one server has, in all its shards.
struct ServerUse {
  std::vector<std::uint32_t> shards;
  std::uint64_t ranges = 0;
  std::uint64_t updates = 0;
  std::uint64_t bytes = 0;
  std::map<std::string, std::set<std::size_t>> tables;  // numbers of their ranges
};

void add_shard(ServerUse& to, const StoreMemory& store, std::uint32_t shards) {
  const auto headers = collective::ps::ranges_in(store);
  if (!headers.ok()) return;
  to.bytes += collective::ps::used_bytes(store);
  to.ranges += headers->size();
  for (const auto* header : *headers) {
    to.updates += header->applied.load();
    const auto spec = collective::ps::spec_of(*header);
    if (!spec.ok()) continue;
    const auto cuts = collective::ps::ranges_of(*spec, shards);
    const auto at = std::ranges::find(cuts, header->positions);
    to.tables[spec->name].insert(static_cast<std::size_t>(at - cuts.begin()));
  }
}

// Of mode ssp; nothing is added in mode async.
void add_clocks(nlohmann::json& out, const collective::ps::Lanes& lanes) {
  auto clocks = nlohmann::json::array();
  for (std::uint32_t i = 0; i < lanes.spec().lanes; ++i) {
    const collective::ps::Lane& lane = lanes.lane(i);
    const std::uint64_t client = lane.client.load(), word = lane.clock.load();
    if (client == 0 || word == 0) continue;
    const std::chrono::duration<double, std::nano> held_up(
        static_cast<double>(lane.held_up_others.load()));
    nlohmann::json one{{"client", client - 1},
                       {"name", collective::ps::name_of_client(lane)},
                       {"host", collective::ps::host_of_client(lane)},
                       {"pid", lane.process.load()},
                       {"clock", word - 1},
                       {"held_up_others", std::chrono::duration<double>(held_up).count()}};
    // Clients write it, so it may be anything.
    if (const std::uint64_t other = lane.waits_for.load();
        other != 0 && other <= lanes.spec().lanes)
      one["waits_for"] =
          collective::ps::name_of_client(lanes.lane(static_cast<std::uint32_t>(other - 1)));
    out["staleness"] = collective::ps::from_word(lane.consistency.load()).staleness.value_or(0);
    clocks.push_back(std::move(one));
  }
  if (clocks.empty()) return;
  out["clocks"] = std::move(clocks);
  out["turns_by_staleness"] = nlohmann::json::array();
  for (const auto& turns : lanes.header().turns_by_staleness)
    out["turns_by_staleness"].push_back(turns.load());
}

// Of mode sync; nothing is added in other modes.
void add_steps(nlohmann::json& out, std::span<const collective::ps::MappedShard> shards) {
  const collective::ps::Lanes& lanes = shards.front().lanes;
  const collective::ps::StepWords& words = lanes.header().steps;
  const std::uint64_t step = words.applied.load();
  auto clients = nlohmann::json::array();
  std::uint32_t leaves = 0;
  for (std::uint32_t i = 0; i < lanes.spec().lanes; ++i) {
    const collective::ps::Lane& lane = lanes.lane(i);
    const std::uint64_t client = lane.client.load();
    const auto consistency = collective::ps::from_word(lane.consistency.load());
    if (client == 0 || consistency.mode != regroup::ps::Mode::kSync) continue;
    // Clients write it, so it may be anything.
    leaves = static_cast<std::uint32_t>(
        std::clamp<std::int64_t>(consistency.leaves.value_or(0), 0, collective::ps::kMostLeaves));
    clients.push_back({{"client", client - 1},
                       {"name", collective::ps::name_of_client(lane)},
                       {"pid", lane.process.load()},
                       {"lane", i},
                       {"leaves", nlohmann::json::array()}});
  }
  if (clients.empty() && step == 0) return;
  std::uint32_t there = 0;
  for (std::uint32_t leaf = 0; leaf < leaves; ++leaf) {
    const bool in_all = std::ranges::all_of(shards, [&](const auto& shard) {
      return collective::ps::has_leaf(shard.lanes.header().steps, step, leaf);
    });
    there += in_all ? 1 : 0;
    const auto claim = collective::ps::LeafClaim::of(words.claims[leaf].load());
    for (nlohmann::json& one : clients) {
      if (!in_all && claim.step == step && one["lane"] == claim.lane) one["leaves"].push_back(leaf);
    }
  }
  for (nlohmann::json& one : clients) one.erase("lane");
  out["step"] = step;
  out["leaves"] = leaves;
  out["leaves_there"] = there;
  out["leaves_taken_over"] = words.taken_over.load();
  out["step_clients"] = std::move(clients);
}

}  // namespace

ServerVerdict ServerRestarts::on_end(const ServerEnd& end) {
  const bool is_short = end.lived < kShort;
  failed_ = end.killed || (end.served && !is_short) ? 0 : failed_ + 1;
  if (failed_ >= kMost) return {false, {}};
  base::Duration after{};
  if (!is_short) {
    short_ = 0;
    return {true, after};
  }
  if (short_ > 0) {
    after = std::min<base::Duration>(kFirstDelay * (1 << std::min(short_ - 1, 10)), kLongestDelay);
  }
  ++short_;
  return {true, after};
}

std::uint32_t servers_of_store(std::uint32_t servers, std::uint32_t stores, std::uint32_t store) {
  return servers / stores + (store < servers % stores ? 1 : 0);
}

base::Result<collective::ps::ServerMemorySpec> memory_spec(const ParameterServerOptions& options) {
  using collective::ps::kMaxShards;
  using collective::ps::kSegmentBytes;
  const std::uint32_t stores = options.stores;
  if (options.servers < stores || options.most_servers < options.servers ||
      options.most_servers > kMaxShards * stores) {
    return base::invalid_argument(fmt::format(
        "--role ps={}: expected {} to {} servers{}", role_text(options), stores,
        kMaxShards * stores, stores == 1 ? "" : fmt::format(" (--ps-hosts {})", stores)));
  }
  std::uint32_t shards = servers_of_store(options.most_servers, stores, options.store);
  if (options.servers != options.most_servers) {
    const std::uint64_t most = std::min<std::uint64_t>(options.bytes / kSegmentBytes, kMaxShards);
    shards = static_cast<std::uint32_t>(
        std::clamp<std::uint64_t>(2ULL * shards, shards, std::max<std::uint64_t>(most, shards)));
  }
  const std::uint64_t bytes = options.bytes / shards;
  if (bytes < kSegmentBytes || bytes > collective::ps::kMaxStoreBytes) {
    return base::invalid_argument(fmt::format(
        "--ps-memory {}: expected {} to {} bytes for each of {} (--role ps={}{}), got {}",
        options.bytes, kSegmentBytes, collective::ps::kMaxStoreBytes,
        base::counted(shards, "server"), role_text(options),
        stores == 1 ? "" : fmt::format(", --ps-hosts {}", stores), bytes));
  }
  auto out = collective::ps::cut_into_segments(bytes, shards);
  out.job_seed = options.seed;
  // A client has a lane in each shard, with room for a dense slice's gradients.
  out.lane_bytes = std::clamp<std::uint64_t>(
      kLanesBytes / shards / collective::ps::kBlockBytes * collective::ps::kBlockBytes,
      kLeastLaneBytes, out.lane_bytes);
  return out;
}

ParameterServer::ParameterServer(boost::asio::io_context& loop, ParameterServerOptions options,
                                 Events events)
    : loop_(loop),
      options_(std::move(options)),
      events_(std::move(events)),
      members_(loop, [this](base::Fd socket, pid_t) { give_memory(std::move(socket)); }),
      askers_(loop, [this](base::Fd socket, pid_t) { give_status(std::move(socket)); }),
      requests_(loop, [this](const std::string& request,
                             const JobRequests::Answer& answer) { on_request(request, answer); }),
      hangs_(look_period(options_.hang_timeout)),
      next_look_(loop) {}

base::Result<std::unique_ptr<ParameterServer>> ParameterServer::start(
    boost::asio::io_context& loop, ParameterServerOptions options, Events events) {
  REGROUP_ASSIGN_OR_RETURN(auto memory, reserve(options));
  return start(loop, std::move(options), std::move(events), std::move(memory));
}

base::Result<std::unique_ptr<ParameterServer>> ParameterServer::start(
    boost::asio::io_context& loop, ParameterServerOptions options, Events events,
    collective::ps::OwnedServerMemory memory) {
  std::unique_ptr<ParameterServer> out(
      new ParameterServer(loop, std::move(options), std::move(events)));
  out->memory_ = std::move(memory);
  REGROUP_RETURN_IF_ERROR(out->map_memory());
  REGROUP_RETURN_IF_ERROR(out->open_gateway());
  REGROUP_RETURN_IF_ERROR(out->listen());
  std::vector<std::uint32_t> servers(
      servers_of_store(out->options_.servers, out->options_.stores, out->options_.store));
  std::iota(servers.begin(), servers.end(), 0);
  out->view_ = collective::ps::place_shards(
                   {}, servers, std::vector<collective::ps::ShardLoad>(out->shards_.size()))
                   .view;
  if (out->options_.checkpoints) REGROUP_RETURN_IF_ERROR(out->make_checkpoints());
  const bool part = out->checkpoints_ && out->options_.store > 0;
  if (!out->resumes() && !part) {
    REGROUP_RETURN_IF_ERROR(out->start_servers());
    return out;
  }
  const auto loaded = [self = out.get()](const base::Status& status) {
    if (self->events_.over()) return;
    self->events_.loaded(status.ok() ? self->start_servers() : status);
  };
  part ? out->checkpoints_->prepare(loaded) : out->checkpoints_->load(loaded);
  return out;
}

base::Status ParameterServer::start_servers() {
  collective::ps::assign_shards(shards_, view_.server_of);
  for (const std::uint32_t number : view_.servers) {
    Server& server = servers_.try_emplace(number, loop_, number).first->second;
    server.state = State::kServing;  // its shards wait for it
    REGROUP_RETURN_IF_ERROR(start_server(server));
  }
  if (options_.hang_timeout.count() > 0) watch_hangs();
  if (checkpoints_) checkpoints_->start();
  return {};
}

base::Status ParameterServer::make_checkpoints() {
  TableCheckpointOptions options = *options_.checkpoints;
  if (options_.stores > 1) {
    options.part = {.number = options_.store, .of = options_.stores, .shards = 0};
    ParameterServerOptions store = options_;
    for (store.store = 0; store.store < store.stores; ++store.store) {
      REGROUP_ASSIGN_OR_RETURN(const auto memory, memory_spec(store));
      options.part.shards += memory.shards;
    }
  }
  options.memory = collective::ps::to_text(memory_.get());
  options.descriptors = descriptors_of(memory_.get());
  std::ranges::sort(options.descriptors);
  checkpoints_ = std::make_unique<TableCheckpoints>(
      loop_, std::move(options),
      TableCheckpoints::Events{events_.said, [this] { return tables_version(); }, events_.others});
  return {};
}

void ParameterServer::save_part(const std::string& description, TableCheckpoints::Saved then) {
  if (checkpoints_) return checkpoints_->save_part(description, std::move(then));
  then(base::invalid_argument("this store writes no checkpoints"));
}

std::uint64_t ParameterServer::tables_version() const {
  std::uint64_t out = 0;
  for (const collective::ps::MappedShard& shard : shards_) {
    const auto headers = collective::ps::ranges_in(shard.store);
    if (!headers.ok()) continue;
    out += headers->size();
    for (const auto* const header : *headers) out += header->applied.load();
  }
  return out;
}

base::Status ParameterServer::listen() {
  REGROUP_RETURN_IF_ERROR(members_.start(options_.memory_socket));
  if (!options_.status_socket.empty())
    REGROUP_RETURN_IF_ERROR(askers_.start(options_.status_socket));
  if (options_.resize_socket.empty()) return {};
  return requests_.start(options_.resize_socket);
}

void ParameterServer::give_status(base::Fd asker) {
  const auto answer =
      [asker = std::make_shared<base::Fd>(std::move(asker))](const std::string& status) {
        // Best effort: the client sees that the connection is closed.
        static_cast<void>(base::send_descriptors(asker->get(), status, {}));
      };
  events_.status ? events_.status(status_json(), answer) : answer(status_json());
}

base::Result<collective::ps::OwnedServerMemory> ParameterServer::reserve(
    const ParameterServerOptions& options) {
  REGROUP_ASSIGN_OR_RETURN(const auto wanted, memory_spec(options));
  return collective::ps::make_server_memory(wanted);
}

base::Status ParameterServer::map_memory() {
  for (const auto& shard : memory_.get().shards) {
    REGROUP_ASSIGN_OR_RETURN(auto mapped,
                             collective::ps::MappedShard::open(shard, StoreMemory::Mode::kWrite));
    shards_.push_back(std::move(mapped));
  }
  return {};
}

void ParameterServer::lose_stores(const std::vector<std::uint32_t>& stores) {
  std::uint64_t lost = 0;
  for (const std::uint32_t store : stores) {
    if (store < options_.stores && store < 64) lost |= std::uint64_t{1} << store;
  }
  collective::ps::note_lost_stores(shards_, lost);
}

// The first member on another host connects after this.
base::Status ParameterServer::open_gateway() {
  if (options_.host_address.empty()) return {};
  REGROUP_ASSIGN_OR_RETURN(base::Fd listener, transport::listen_tcp(0));
  collective::ps::GatewayAddress address{
      .host = options_.host_name, .address = options_.host_address, .port = 0};
  REGROUP_ASSIGN_OR_RETURN(address.port, transport::port_of(listener));
  if (::getrandom(address.token.data(), address.token.size(), 0) !=
      static_cast<ssize_t>(address.token.size()))
    return base::system_error("getrandom", "the token of a gateway", errno);
  gateway_address_ = collective::ps::to_text(address);
  REGROUP_ASSIGN_OR_RETURN(
      gateway_, collective::ps::Gateway::start({.memory = memory_.get(),
                                                .listener = std::move(listener),
                                                .token = address.token,
                                                .next_client = [this] { return ++clients_; }}));
  return {};
}

ParameterServer::~ParameterServer() {
  gateway_.reset();  // it uses the rest
  for (auto& [number, server] : servers_) {
    if (server.process) server.process->abandon();
  }
}

std::string ParameterServer::name_of(const Server& server) const {
  if (shards_.size() == 1) return "the parameter server";
  return fmt::format("server {} of the parameter server", server.number);
}

base::Status ParameterServer::start_server(Server& server) {
  process::SpawnSpec spec;
  spec.path = options_.program;
  spec.argv = {"regroup-ps", "--memory", collective::ps::to_text(memory_.get()), "--server",
               std::to_string(server.number)};
  spec.environment = process::to_strings(options_.environment);
  spec.kept = descriptors_of(memory_.get());
  std::ranges::sort(spec.kept);
  REGROUP_ASSIGN_OR_RETURN(
      server.process,
      process::PipedProcess::start(
          loop_, std::move(spec),
          {[this, &server](std::string_view line, bool error) { on_line(server, line, error); },
           [this, &server](int wait_status) { on_end(server, wait_status); }}));
  server.pid = server.process->pid();
  server.started = base::SystemClock().now();
  server.killed.reset();
  hangs_.begin(server.number);
  ++server.starts;
  return {};
}

// A server says that it is ready on its standard output, so that shards do not wait while a new one
// starts.
void ParameterServer::on_line(Server& server, std::string_view line, bool error) {
  if (error || line != "ready") return events_.over() ? void() : events_.said(std::string(line));
  if (server.state != State::kJoining) return;
  server.state = State::kServing;
  change_view();
}

std::vector<ParameterServer::Server*> ParameterServer::staying() {
  std::vector<Server*> out;
  for (auto& [number, server] : servers_) {
    if (server.state == State::kJoining || server.state == State::kServing) out.push_back(&server);
  }
  return out;
}

void ParameterServer::change_view() {
  std::vector<std::uint32_t> servers;
  for (const auto& [number, server] : servers_) {
    if (server.state == State::kServing) servers.push_back(number);
  }
  std::vector<collective::ps::ShardLoad> loads;
  for (const auto& shard : shards_) {
    ServerUse use;
    add_shard(use, shard.store, static_cast<std::uint32_t>(shards_.size()));
    loads.push_back({use.bytes, use.updates});
  }
  collective::ps::ShardPlacement next = collective::ps::place_shards(view_, servers, loads);
  view_ = std::move(next.view);
  moves_ = std::move(next.moves);
  collective::ps::assign_shards(shards_, view_.server_of);
}

base::Result<std::string> ParameterServer::resize(std::uint32_t servers) {
  if (options_.servers == options_.most_servers) {
    return base::invalid_argument(
        fmt::format("resize ps={}: this job has a fixed number of servers (--role ps={}); expected "
                    "a range, for example --role ps=1:4",
                    servers, role_text(options_)));
  }
  if (servers < options_.servers || servers > options_.most_servers) {
    return base::invalid_argument(
        fmt::format("resize ps={}: expected {} to {} servers (--role ps={})", servers,
                    options_.servers, options_.most_servers, role_text(options_)));
  }
  if (servers_.empty()) {
    return base::unavailable(fmt::format("resize ps={}: the job still loads its tables", servers));
  }
  const std::size_t before = staying().size();
  const std::uint32_t wanted = servers_of_store(servers, options_.stores, options_.store);
  while (staying().size() < wanted) REGROUP_RETURN_IF_ERROR(add_server());
  while (staying().size() > wanted) remove_server();
  return fmt::format("parameter server: {} instead of {}", base::counted(wanted, "server"), before);
}

base::Status ParameterServer::add_server() {
  std::uint32_t number = 0;
  while (servers_.contains(number) && servers_.at(number).state != State::kLeft) ++number;
  Server& server = servers_.try_emplace(number, loop_, number).first->second;
  server.restarts = {};
  server.starts = 0;
  server.state = State::kLeft;
  REGROUP_RETURN_IF_ERROR(start_server(server));
  server.state = State::kJoining;
  return {};
}

// The one of the highest number. Its shards get another server first; then the end of its input
// ends it after the message in hand.
void ParameterServer::remove_server() {
  Server& server = *staying().back();
  const bool served = server.state == State::kServing;
  server.state = server.pid == 0 ? State::kLeft : State::kLeaving;
  process::call_off(server.back_off);
  if (served) change_view();
  if (server.pid == 0) return;
  server.process->close_input();
  server.back_off.expires_after(kLeave);
  server.back_off.async_wait([&server](const boost::system::error_code& error) {
    // Process 0 would be this process's group.
    if (!error && server.state == State::kLeaving && server.pid > 0 &&
        process::is_due(server.back_off))
      ::kill(server.pid, SIGKILL);
  });
}

base::Result<std::string> ParameterServer::kill(const std::string& server) {
  std::uint32_t number = 0;
  const bool valid = base::read_number(std::string_view(server).substr(3), number);
  const auto found = valid ? servers_.find(number) : servers_.end();
  if (found == servers_.end() || found->second.pid == 0) {
    return base::not_found(fmt::format(
        "kill-member {}: no such server runs on this host; see `regroup status`", server));
  }
  ::kill(found->second.pid, SIGKILL);
  return fmt::format("server {} of the parameter server is being killed", number);
}

// The request is "ps N" or "save".
void ParameterServer::on_request(const std::string& request, const JobRequests::Answer& answer) {
  std::uint32_t servers = 0;
  if (request == "save") return save_for(answer);
  if (!request.starts_with("ps ") ||
      !base::read_number(std::string_view(request).substr(3), servers))
    return;
  base::Result<std::string> done = resize(servers);
  return done.ok() && events_.resize ? events_.resize(servers, answer) : answer(done);
}

// Answers once the checkpoint is on the disk.
void ParameterServer::save_for(const JobRequests::Answer& answer) {
  const bool loads = servers_.empty() || (checkpoints_ && !checkpoints_->ready());
  if (checkpoints_ && options_.checkpoints->plan.every > 0 && !loads)
    return checkpoints_->save(answer);
  answer(base::invalid_argument(
      !checkpoints_ ? "checkpoint save: this job has no directory; start it with --checkpoint DIR"
      : loads       ? "checkpoint save: the job still loads its tables"
                    : "checkpoint save: this job writes no checkpoints (--checkpoint-interval 0)"));
}

void ParameterServer::on_end(Server& server, int wait_status) {
  const pid_t pid = std::exchange(server.pid, 0);
  const bool left = server.state == State::kLeaving;
  if (left) {  // also when the job is over: nothing is left to kill
    server.state = State::kLeft;
    process::call_off(server.back_off);
  }
  if (events_.over()) return;
  if (left) {
    return events_.said(
        fmt::format("{} (pid {}) {}", name_of(server), pid,
                    wait_status == 0 ? "has left" : "was to leave, and " + end_text(wait_status)));
  }
  const bool served =
      std::ranges::any_of(shards_, [&](const auto& shard) { return serves(shard, pid); });
  // One that hangs whenever it starts must not be started for ever.
  const bool hung = server.killed.has_value();
  const ServerVerdict verdict =
      server.restarts.on_end({is_kill(wait_status) && !hung, hung ? server.killed->moved : served,
                              base::SystemClock().now() - server.started});
  const std::string what = fmt::format("{} (pid {}) {}", name_of(server), pid,
                                       hung ? "has hung" : end_text(wait_status));
  if (!verdict.again && server.state == State::kJoining) {
    server.state = State::kLeft;
    return events_.said(fmt::format("{}, {} times in a row: the job goes on without it", what,
                                    ServerRestarts::kMost));
  }
  if (!verdict.again)
    return events_.failed(fmt::format("{}, {} times in a row", what, ServerRestarts::kMost));
  if (!hung) events_.said(what + ": starting the next one on the same tables");
  server.back_off.expires_after(
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(verdict.after));
  server.back_off.async_wait([this, &server](const boost::system::error_code& error) {
    if (error || events_.over() || !process::is_due(server.back_off)) return;
    if (const base::Status status = start_server(server); !status.ok()) {
      events_.failed(fmt::format("{} cannot be started: {}", name_of(server), status.message()));
    }
  });
}

void ParameterServer::watch_hangs() {
  next_look_.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      look_period(options_.hang_timeout)));
  next_look_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    look_for_hangs();
    watch_hangs();
  });
}

// A server that joins has no shards yet, and one that leaves has none any more: nobody waits for
// them.
void ParameterServer::look_for_hangs() {
  hangs_.begin_round(base::SystemClock().now());
  for (auto& [number, server] : servers_) {
    if (server.pid == 0 || server.state != State::kServing || server.killed) continue;
    std::vector<ShardBeats> beats;
    for (std::uint32_t shard = 0; shard < shards_.size(); ++shard) {
      if (view_.server_of[shard] == number)
        beats.push_back({shard, shards_[shard].lanes.header().beats.load()});
    }
    const std::optional<Standstill> still = hangs_.look(number, beats);
    if (still && still->time >= options_.hang_timeout) kill_hung(server, *still);
  }
}

void ParameterServer::kill_hung(Server& server, const Standstill& still) {
  server.killed = still;
  ++server.hangs;
  ::kill(server.pid, SIGKILL);
  if (events_.over()) return;
  events_.said(fmt::format(
      "{} (pid {}) has stood still for more than {:g} s{} (--hang-timeout): killing it and "
      "starting the next one on the same tables",
      name_of(server), server.pid, std::chrono::duration<double>(options_.hang_timeout).count(),
      shards_.size() == 1 ? "" : fmt::format(" in shard {}", still.shard)));
}

// Each process gets a number of its own: pushes of one that has ended stay told apart.
void ParameterServer::give_memory(base::Fd socket) {
  ServerMemory numbered = memory_.get();
  int next = 0;  // places among the descriptors of the message
  for (auto& shard : numbered.shards) {
    shard.lanes = next++;
    for (int& segment : shard.segments) segment = next++;
  }
  const std::string text = fmt::format("{} {}", ++clients_, collective::ps::to_text(numbered));
  // A process that does not get it sees that the connection is closed.
  static_cast<void>(base::send_descriptors(socket.get(), text, descriptors_of(memory_.get())));
}

std::string ParameterServer::status_json() {
  std::map<std::uint32_t, ServerUse> uses;
  std::uint64_t bytes = 0;
  auto kinds = nlohmann::json::object();
  for (std::uint32_t shard = 0; shard < shards_.size(); ++shard) {
    ServerUse& use = uses[view_.server_of[shard]];
    use.shards.push_back(shard);
    bytes += shards_[shard].store.bytes();
    add_bytes(kinds, shards_[shard].store);
    add_shard(use, shards_[shard].store, static_cast<std::uint32_t>(shards_.size()));
  }
  std::uint64_t ranges = 0;
  std::uint64_t waiting = 0;
  std::uint64_t updates = 0;
  std::uint64_t restarts = 0;
  auto servers = nlohmann::json::array();
  for (const auto& [number, server] : servers_) {
    if (server.state == State::kLeft) continue;
    const ServerUse& use = uses[number];
    const std::uint64_t again = server.starts == 0 ? 0 : server.starts - 1;
    auto tables = nlohmann::json::object();
    for (const auto& [name, numbers] : use.tables) tables[name] = short_list(numbers);
    servers.push_back({{"server", number},
                       {"pid", server.pid},
                       {"shards", use.shards},
                       {"ranges", use.ranges},
                       {"bytes", use.bytes},
                       {"updates", use.updates},
                       {"restarts", again},
                       {"hangs", server.hangs},
                       {"tables", std::move(tables)}});
    const auto still = hangs_.last(number);
    if (still && still->time >= options_.hang_timeout / 2) {
      servers.back()["still_seconds"] = std::chrono::duration<double>(still->time).count();
      servers.back()["still_shard"] = still->shard;
    }
    ranges += use.ranges;
    const bool all = server.pid != 0 && std::ranges::all_of(use.shards, [&](std::uint32_t shard) {
                       return serves(shards_[shard], server.pid);
                     });
    if (!all) waiting += use.ranges;
    updates += use.updates;
    restarts += again;
  }
  nlohmann::json out{
      {"view", view_.number},       {"bytes", bytes},       {"store", kinds},
      {"clients", clients_.load()}, {"ranges", ranges},     {"ranges_waiting", waiting},
      {"updates", updates},         {"restarts", restarts}, {"servers", servers}};
  out["checkpoint"] = checkpoints_ ? checkpoints_->newest() : 0;
  out["moves"] = nlohmann::json::array();
  for (const collective::ps::ShardMove& move : moves_) {
    out["moves"].push_back(
        {{"shard", move.shard}, {"from", move.from}, {"to", move.to}, {"why", move.why}});
  }
  add_clocks(out, shards_.front().lanes);
  add_steps(out, shards_);
  std::string text = out.dump();
  if (text.size() < base::kMostDescriptorText) return text;
  for (nlohmann::json& server : out["servers"]) server.erase("tables");  // too many to list
  return out.dump();
}

}  // namespace regroup::job
