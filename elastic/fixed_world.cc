// The first rank to bind the name serves the World; the others connect to it.
#include "elastic/fixed_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string_view>
#include <thread>
#include <utility>

#include "base/clock.h"

namespace regroup::elastic {
namespace {

using base::Code;
using base::Result;

constexpr std::chrono::seconds kReadyTimeout{300};
constexpr std::chrono::milliseconds kAgain{5};

std::atomic<std::uint32_t> worlds{0};  // number of Worlds this process has been in
std::atomic<bool> process_in_world{false};

// FNV-1a.
std::uint64_t hash_of(std::string_view text, std::uint64_t hash) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

std::string name_of(const DetectedLaunch& launch) {
  return fmt::format("regroup-world-{:016x}{:016x}-{}", hash_of(launch.key, 0xcbf29ce484222325ULL),
                     hash_of(launch.key, 0x9e3779b97f4a7c15ULL), worlds.load());
}

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

base::Status several_hosts(const DetectedLaunch& launch) {
  return base::invalid_argument(fmt::format(
      "join: this process is rank {} of {} of {} ({}), and not all ranks run on this host. A "
      "World of fixed size on several hosts requires regroup: `regroup -np {} --host ...` "
      "instead of {}. To train alone in each process, set REGROUP_WORLD=alone",
      launch.rank, launch.size, launch.by, launch.seen, launch.size, launch.by));
}

}  // namespace

Result<std::unique_ptr<SingleWorldGuard>> SingleWorldGuard::take() {
  if (process_in_world.exchange(true))
    return base::invalid_argument(
        "join: this process is already in a World; call finish() of its session first");
  return std::unique_ptr<SingleWorldGuard>(new SingleWorldGuard());
}

void SingleWorldGuard::finished() {
  if (std::exchange(held_, false)) process_in_world.store(false);
}

SingleWorldGuard::~SingleWorldGuard() { finished(); }

Result<RankConnection> connect_ranks(const DetectedLaunch& launch, const Environment& env,
                                     base::Duration timeout) {
  if (!launch.one_host) return several_hosts(launch);
  REGROUP_ASSIGN_OR_RETURN(auto guard, SingleWorldGuard::take());
  RankConnection out{{}, nullptr, std::move(guard)};
  FixedWorldServerOptions options{
      .name = name_of(launch),
      .size = launch.size,
      .shards = env.shards != 0 ? env.shards : std::bit_ceil(launch.size),
      .seed = env.seed,
      .ready_timeout =
          std::min(kReadyTimeout, std::chrono::duration_cast<std::chrono::seconds>(timeout)),
  };
  if (launch.by == "regroup" && !env.rank_exits.empty())
    options.scan_ranks = [path = env.rank_exits] { return parse_exits(text_of(path)); };
  else if (launch.starter != 0)
    options.scan_ranks = [launch] { return scan_ranks(launch, read_descendants(launch.starter)); };
  const base::TimePoint deadline = base::SystemClock().now() + timeout;
  for (;;) {
    auto link = AgentLink::connect_to_rank(options.name);
    if (link.ok()) {
      out.link = std::move(*link);
      return out;
    }
    if (link.code() == Code::kInvalidArgument) return link.status();
    REGROUP_ASSIGN_OR_RETURN(auto server, FixedWorldServer::start(options));
    if (server) {
      out.server = std::move(server);
    } else if (base::SystemClock().now() >= deadline) {
      return link.status();
    } else {
      // Another rank has bound the name, but does not listen yet.
      std::this_thread::sleep_for(kAgain);
    }
  }
}

void count_world() { worlds.fetch_add(1); }

}  // namespace regroup::elastic
