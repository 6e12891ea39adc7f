// Messages between the agent and its helper process regroup-pmi, as plain data. A space (PMIx:
// namespace) is the set of processes of one MPI_COMM_WORLD: space 0 is the job as started, each
// MPI_Comm_spawn adds one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/variant.h"

namespace regroup::pmi {

// Identifies a process by its rank in its space (PMIx: pmix_proc_t).
struct ProcId {
  std::uint32_t space = 0;
  std::uint32_t rank = 0;
  auto operator<=>(const ProcId&) const = default;
};

// The processors of a bound process in Open MPI's format: "0-1", and
// "SK0:L30:L20-1:L10-1:CR0-1:HT0-1:NM0", the logical numbers of their packages, caches, cores,
// threads and NUMA nodes.
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
  std::uint64_t spawn = 0;              // number of the Spawn of this host that requested it; or 0
  std::vector<Binding> bindings = {};   // by rank; empty: no process is bound
  std::optional<ProcId> parent = {};    // the process that called MPI_Comm_spawn
  std::vector<std::string> hosts = {};  // of the job; empty: this one alone
  std::vector<std::uint32_t> host_of = {};  // by rank, index of `hosts`
  std::uint32_t host = 0;                   // which of them this is
  std::vector<std::string> values = {};     // of the Spawn

  [[nodiscard]] bool here(std::uint32_t rank) const {
    return host_of.empty() || (rank < host_of.size() && host_of[rank] == host);
  }
};
// A process that never called MPI_Init is restarted. Answered by a RankReady for it.
struct ReplaceRank {
  ProcId process;
};
struct MemberGone {
  ProcId process;
  std::int32_t code = 0;    // exit code, if it exited
  std::int32_t signal = 0;  // the signal that killed it, or 0
  bool failed = false;      // report it to the members of a fault-tolerant program
};
// All processes of the space have ended: drop its state.
struct CloseSpace {
  std::uint32_t space = 0;
};
// Answered by a Ping: regroup-pmi is alive.
struct Ping {};
struct SpawnDone {
  std::uint64_t request = 0;
  std::uint32_t space = 0;
  std::string error;  // "": the processes of `space` have been started
};

// --- helper -> agent
// The first message: which services regroup-pmi provides.
struct Services {
  bool pmix = false;
  std::string note;  // why not
};
// Comes with the descriptor that the process inherits as its PMI-1 connection.
struct RankReady {
  ProcId process;
  std::vector<std::string> environment;  // "NAME=value"
};
struct Connected {  // began MPI_Init
  ProcId process;
};
struct Finalized {  // sent before MPI_Finalize returns
  ProcId process;
};
struct Aborted {  // called MPI_Abort
  ProcId process;
  std::int32_t status = 0;
  std::string message;
};
// Processes of these spaces have connected (MPI_Comm_spawn, MPI_Comm_connect). Sent before the call
// returns.
struct GroupsConnected {
  std::vector<std::uint32_t> spaces;
};
// Processes of these spaces have disconnected (MPI_Comm_disconnect). Sent before the call returns.
struct GroupsDisconnected {
  std::vector<std::uint32_t> spaces;
};
// The data, possibly empty, that the processes of this host contribute to an operation of processes
// of `hosts`. `key` is the same on all of them and used for this operation only. Answered by
// Gathered.
struct Contribute {
  std::string key;
  std::vector<std::uint32_t> hosts;
  std::uint32_t host = 0;  // this one
  std::vector<std::byte> data;
  std::uint32_t space = 0;  // of the processes; if they are of several, the lowest
};
// To each of the hosts: the contributions of all of them, in the order of `hosts`.
struct Gathered {
  std::string key;
  std::vector<std::byte> data;
};
// `host` requests the data that a process of another host has published (PMIx_Put, PMIx_Commit).
struct Fetch {
  std::uint64_t request = 0;
  std::uint32_t host = 0;
  ProcId of;
};
// The reply to Fetch and to NameCall; `status` is libpmix's.
struct Fetched {
  std::uint64_t request = 0;
  std::uint32_t host = 0;
  std::int32_t status = 0;
  std::vector<std::byte> data;
};
enum class NameOperation : std::uint8_t {
  kPublish,  // of PMIx, as pmix_names.h packs it
  kLookup,
  kUnpublish,
  kPmi1Publish,  // of PMI-1, as pmi1_group.h packs it
  kPmi1Lookup,
  kPmi1Unpublish,
};
// `from`, a process of `host`, publishes names or looks them up (MPI_Publish_name,
// MPI_Lookup_name). Goes to the first host, which keeps the names of the job. Answered by Fetched.
struct NameCall {
  std::uint64_t request = 0;
  std::uint32_t host = 0;
  ProcId from;
  NameOperation operation = NameOperation::kPublish;
  std::vector<std::byte> data;
};
struct SpawnApp {
  std::string command;
  std::vector<std::string> arguments;    // without the command
  std::vector<std::string> environment;  // in addition to the parent's
  std::string wdir;                      // "": the parent's
  std::uint32_t count = 0;
};
// Answered by an OpenSpace with the number of this request, then by SpawnDone; on an error by
// SpawnDone alone.
struct Spawn {
  std::uint64_t request = 0;
  ProcId parent;
  std::vector<SpawnApp> apps;
  // Initial content of the new processes' PMI-1 key-value space: key, value, key, value.
  std::vector<std::string> values = {};
};

using Message =
    base::Variant<OpenSpace, ReplaceRank, MemberGone, CloseSpace, Ping, SpawnDone, Services,
                  RankReady, Connected, Finalized, Aborted, GroupsConnected, GroupsDisconnected,
                  Spawn, Contribute, Gathered, Fetch, Fetched, NameCall>;

}  // namespace regroup::pmi
