// One server at a time. The store's lock, not this file, keeps two from writing at once.
#include "launcher/job/parameter_server.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "base/descriptor_message.h"
#include "base/printable.h"
#include "collective/ps/store.h"
#include "launcher/process/environment.h"
#include "launcher/process/signals.h"

namespace regroup::job {
namespace {

using collective::ps::ServerMemory;
using collective::ps::StoreMemory;

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

// Nobody but another process sends these.
bool is_kill(int wait_status) {
  if (!WIFSIGNALED(wait_status)) return false;
  const int signal = WTERMSIG(wait_status);
  return signal == SIGKILL || signal == SIGTERM || signal == SIGINT || signal == SIGHUP;
}

base::Result<StoreMemory> map_store(const collective::ps::ShardMemory& shard) {
  REGROUP_ASSIGN_OR_RETURN(
      StoreMemory out,
      StoreMemory::open(shard.segments.at(0), static_cast<std::uint32_t>(shard.segments.size()),
                        StoreMemory::Mode::kRead));
  for (std::size_t i = 1; i < shard.segments.size(); ++i)
    REGROUP_RETURN_IF_ERROR(out.add(shard.segments[i]));
  return out;
}

}  // namespace

ServerVerdict ServerRestarts::on_end(const ServerEnd& end) {
  if (end.lived >= kShort) {
    short_ = failed_ = 0;
    return {};
  }
  failed_ = end.killed ? 0 : failed_ + 1;
  if (failed_ >= kMost) return {false, {}};
  base::Duration after{};
  if (short_ > 0) {
    after = std::min<base::Duration>(kFirstDelay * (1 << std::min(short_ - 1, 10)), kLongestDelay);
  }
  ++short_;
  return {true, after};
}

base::Result<collective::ps::ServerMemorySpec> memory_spec(const ParameterServerOptions& options) {
  using collective::ps::kMaxShards;
  using collective::ps::kSegmentBytes;
  if (options.shards < 1 || options.shards > kMaxShards) {
    return base::invalid_argument(
        fmt::format("--role ps={}: expected 1 to {} threads of the parameter server",
                    options.shards, kMaxShards));
  }
  const std::uint64_t bytes = options.bytes / options.shards;
  if (bytes < kSegmentBytes || bytes > collective::ps::kMaxStoreBytes) {
    return base::invalid_argument(
        fmt::format("--ps-memory {}: expected {} to {} bytes for each of {} (--role ps={}), got {}",
                    options.bytes, kSegmentBytes, collective::ps::kMaxStoreBytes,
                    base::counted(options.shards, "thread"), options.shards, bytes));
  }
  auto out = collective::ps::cut_into_segments(bytes, options.shards);
  out.job_seed = options.seed;
  return out;
}

ParameterServer::ParameterServer(boost::asio::io_context& loop, ParameterServerOptions options,
                                 Events events)
    : loop_(loop),
      options_(std::move(options)),
      events_(std::move(events)),
      members_(loop, [this](base::Fd socket, pid_t) { give_memory(std::move(socket)); }),
      askers_(loop,
              [this](const base::Fd& socket, pid_t) {
                // Best effort: who asks sees that the connection is closed.
                static_cast<void>(base::send_descriptors(socket.get(), status_json(), {}));
              }),
      back_off_(loop) {}

base::Result<std::unique_ptr<ParameterServer>> ParameterServer::start(
    boost::asio::io_context& loop, ParameterServerOptions options, Events events) {
  REGROUP_ASSIGN_OR_RETURN(const auto wanted, memory_spec(options));
  std::unique_ptr<ParameterServer> out(
      new ParameterServer(loop, std::move(options), std::move(events)));
  REGROUP_ASSIGN_OR_RETURN(out->memory_, collective::ps::make_server_memory(wanted));
  for (const auto& shard : out->memory_.get().shards) {
    REGROUP_ASSIGN_OR_RETURN(StoreMemory store, map_store(shard));
    out->stores_.push_back(std::move(store));
  }
  REGROUP_RETURN_IF_ERROR(out->members_.start(out->options_.memory_socket));
  REGROUP_RETURN_IF_ERROR(out->askers_.start(out->options_.status_socket));
  REGROUP_RETURN_IF_ERROR(out->start_server());
  return out;
}

ParameterServer::~ParameterServer() {
  if (server_) server_->abandon();
}

base::Status ParameterServer::start_server() {
  process::SpawnSpec spec;
  spec.path = options_.program;
  spec.argv = {"regroup-ps", "--memory", collective::ps::to_text(memory_.get())};
  spec.environment = process::to_strings(options_.environment);
  spec.kept = descriptors_of(memory_.get());
  std::ranges::sort(spec.kept);
  REGROUP_ASSIGN_OR_RETURN(
      server_, process::PipedProcess::start(
                   loop_, std::move(spec),
                   {[this](std::string_view line, bool) { events_.said(std::string(line)); },
                    [this](int wait_status) { on_end(wait_status); }}));
  pid_ = server_->pid();
  started_ = base::SystemClock().now();
  ++starts_;
  return {};
}

void ParameterServer::on_end(int wait_status) {
  const pid_t pid = std::exchange(pid_, 0);
  if (events_.ending()) return;
  const ServerVerdict verdict =
      restarts_.on_end({is_kill(wait_status), base::SystemClock().now() - started_});
  const std::string what =
      fmt::format("the parameter server (pid {}) {}", pid, end_text(wait_status));
  if (!verdict.again) {
    events_.said(fmt::format("{}, {} times in a row: ending the job", what, ServerRestarts::kMost));
    return events_.failed();
  }
  events_.said(what + ": starting the next one on the same tables");
  back_off_.expires_after(
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(verdict.after));
  back_off_.async_wait([this](const boost::system::error_code& error) {
    if (error || events_.ending()) return;
    if (const base::Status status = start_server(); !status.ok()) {
      events_.said(fmt::format("the parameter server cannot be started: {}: ending the job",
                               status.message()));
      events_.failed();
    }
  });
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
  std::uint64_t bytes = 0;
  std::uint64_t ranges = 0;
  std::uint64_t updates = 0;
  for (const StoreMemory& store : stores_) {
    bytes += store.bytes();
    const auto headers = collective::ps::ranges_in(store);
    if (!headers.ok()) continue;
    ranges += headers->size();
    for (const auto* header : *headers) updates += header->applied.load();
  }
  return nlohmann::json{{"pid", pid_},
                        {"shards", options_.shards},
                        {"bytes", bytes},
                        {"clients", clients_},
                        {"ranges", ranges},
                        {"updates", updates},
                        {"restarts", starts_ == 0 ? 0 : starts_ - 1}}
      .dump();
}

}  // namespace regroup::job
