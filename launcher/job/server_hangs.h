// Notices servers of a parameter server whose threads stand still. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>

#include "base/clock.h"

namespace regroup::job {

// How often the thread of a shard has gone on (collective::ps::LanesHeader::beats).
struct ShardBeats {
  std::uint32_t shard = 0;
  std::uint64_t beats = 0;
};
struct Standstill {
  std::uint32_t shard = 0;
  base::Duration time{};
  bool moved = false;  // a shard of the server has gone on since it began
  bool operator==(const Standstill&) const = default;
};

class ServerHangs {
 public:
  // `period`: the time between two rounds.
  explicit ServerHangs(base::Duration period) : period_(period) {}
  // A process begins to be server `server`.
  void begin(std::uint32_t server) { servers_.erase(server); }
  // Begins a round. Time that this process did not run, because the job was suspended, for example,
  // counts for no server.
  void begin_round(base::TimePoint now);
  // Notes the beats of all shards of a server in this round. Returns the shard that has stood still
  // for the longest time; none if the server has no shards.
  [[nodiscard]] std::optional<Standstill> look(std::uint32_t server,
                                               std::span<const ShardBeats> shards);
  // What look() has returned last.
  [[nodiscard]] std::optional<Standstill> last(std::uint32_t server) const;

 private:
  struct Shard {
    std::uint64_t beats = 0;
    base::TimePoint since{};
  };
  struct Server {
    std::map<std::uint32_t, Shard> shards;
    bool moved = false;
    std::optional<Standstill> last;
  };

  const base::Duration period_;
  base::TimePoint now_{};
  std::map<std::uint32_t, Server> servers_;
};

}  // namespace regroup::job
