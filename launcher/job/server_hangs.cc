// A shard counts from the round in which it is first seen, so that a server has the whole time
// limit for each shard that it gets.
#include "launcher/job/server_hangs.h"

#include <algorithm>
#include <utility>

namespace regroup::job {

void ServerHangs::begin_round(base::TimePoint now) {
  const base::Duration missed = now - std::exchange(now_, now) - period_;
  if (missed <= period_) return;
  for (auto& [number, server] : servers_) {
    for (auto& [shard, seen] : server.shards) seen.since += missed;
  }
}

std::optional<Standstill> ServerHangs::look(std::uint32_t server,
                                            std::span<const ShardBeats> shards) {
  Server& known = servers_[server];
  std::map<std::uint32_t, Shard> before = std::exchange(known.shards, {});
  known.last.reset();
  for (const auto& [shard, beats] : shards) {
    const auto seen = before.find(shard);
    const bool first = seen == before.end();
    const bool still = !first && seen->second.beats == beats;
    known.moved = known.moved || (!first && !still);
    const base::TimePoint since = still ? seen->second.since : now_;
    known.shards[shard] = {beats, since};
    if (!known.last || now_ - since > known.last->time)
      known.last = Standstill{shard, now_ - since, false};
  }
  if (known.last) known.last->moved = known.moved;
  return known.last;
}

std::optional<Standstill> ServerHangs::last(std::uint32_t server) const {
  const auto known = servers_.find(server);
  return known == servers_.end() ? std::nullopt : known->second.last;
}

}  // namespace regroup::job
