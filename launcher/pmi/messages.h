// What the agent and its helper regroup-pmi say to each other, as plain data. A space is a set of processes
// with one MPI_COMM_WORLD: space 0 is the job as it was started, each MPI_Comm_spawn adds one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/variant.h"

namespace regroup::pmi {

// A process: its rank in its space.
struct Seat {
  std::uint32_t space = 0;
  std::uint32_t rank = 0;
  auto operator<=>(const Seat&) const = default;
};

// The processors of a bound process, in the words of Open MPI: "0-1", and
// "SK0:L30:L20-1:L10-1:CR0-1:HT0-1:NM0", the logical numbers of the packages, caches, cores, threads and NUMA
// nodes that they are in.
struct Binding {
  std::string cpus;
  std::string locality;
};

// --- agent -> helper
// Answered by a RankReady for each rank of this host.
struct OpenSpace {
  std::uint32_t space = 0;
  std::uint32_t slots = 0;      // cores that the job may use: MPI_UNIVERSE_SIZE
  bool oversubscribed = false;  // there are more processes than cores: they must not spin
  std::vector<std::uint32_t> app_sizes;
  std::uint64_t spawn = 0;                  // the Spawn of this host that asked for it; 0: none
  std::vector<Binding> bindings = {};       // by rank; empty: nobody is bound
  std::optional<Seat> parent = {};          // whose MPI_Comm_spawn it is
  std::vector<std::string> hosts = {};      // of the job; empty: this one alone
  std::vector<std::uint32_t> host_of = {};  // by rank, index of `hosts`
  std::uint32_t host = 0;                   // which of them this is

  [[nodiscard]] bool here(std::uint32_t rank) const {
    return host_of.empty() || (rank < host_of.size() && host_of[rank] == host);
  }
};
// A process that was never in MPI_Init is started anew. Answered by a RankReady for it.
struct ReplaceRank {
  Seat seat;
};
struct MemberGone {
  Seat seat;
  std::int32_t code = 0;    // exit code, if it exited
  std::int32_t signal = 0;  // that killed it, or 0
  bool failed = false;      // members of a fault-tolerant program are to hear of it
};
// All its processes have ended: forget it.
struct CloseSpace {
  std::uint32_t space = 0;
};
// Answered by the same: regroup-pmi is alive.
struct Ping {};
struct SpawnDone {
  std::uint64_t request = 0;
  std::uint32_t space = 0;
  std::string error;  // "": the processes of `space` have been started
};

// --- helper -> agent
// First of all: what it can do.
struct Services {
  bool pmix = false;
  std::string note;  // why not
};
// Comes with the descriptor that the process inherits as its PMI-1 connection.
struct RankReady {
  Seat seat;
  std::vector<std::string> environment;  // "NAME=value"
};
struct Connected {  // began MPI_Init
  Seat seat;
};
struct Finalized {  // sent before MPI_Finalize returns
  Seat seat;
};
struct Aborted {  // called MPI_Abort
  Seat seat;
  std::int32_t status = 0;
  std::string message;
};
// Processes of these spaces became one program (MPI_Comm_spawn, MPI_Comm_connect) ...
struct Met {
  std::vector<std::uint32_t> spaces;
};
// ... and parted (MPI_Comm_disconnect). Sent before the call returns.
struct Parted {
  std::vector<std::uint32_t> spaces;
};
// What the processes of this host bring to something that processes of `hosts` do together, or that they have
// come to it. `key` is the same on all of them, and of this one time only. Answered by Gathered.
struct Contribute {
  std::string key;
  std::vector<std::uint32_t> hosts;
  std::uint32_t host = 0;  // this one
  std::vector<std::byte> data;
};
// To each of the hosts: what all of them brought, in the order of `hosts`.
struct Gathered {
  std::string key;
  std::vector<std::byte> data;
};
// What a process of another host has made known of itself is asked for by `host`, and answered ...
struct Fetch {
  std::uint64_t request = 0;
  std::uint32_t host = 0;
  Seat of;
};
// ... to it. `status` is that of libpmix.
struct Fetched {
  std::uint64_t request = 0;
  std::uint32_t host = 0;
  std::int32_t status = 0;
  std::vector<std::byte> data;
};
struct SpawnApp {
  std::string command;
  std::vector<std::string> arguments;    // without the command
  std::vector<std::string> environment;  // besides the parent's
  std::string wdir;                      // "": the parent's
  std::uint32_t count = 0;
};
// Answered by an OpenSpace that names it, then by SpawnDone; or by SpawnDone alone.
struct Spawn {
  std::uint64_t request = 0;
  Seat parent;
  std::vector<SpawnApp> apps;
};

using Message =
    core::Variant<OpenSpace, ReplaceRank, MemberGone, CloseSpace, Ping, SpawnDone, Services, RankReady,
                  Connected, Finalized, Aborted, Met, Parted, Spawn, Contribute, Gathered, Fetch, Fetched>;

}  // namespace regroup::pmi
