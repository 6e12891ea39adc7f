// Groups of spaces that are connected in the sense of MPI 4 ("Releasing Connections") and so fail
// together: MPI_Comm_spawn, or MPI_Comm_accept and MPI_Comm_connect, has connected them, and
// MPI_Comm_disconnect has not disconnected them since.
//
// Hosts report connections. A host's report counts only for the spaces in which it runs ranks, so
// that no host can connect, or disconnect, the ranks of others. Not thread-safe; nothing blocks or
// fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

namespace regroup::pmi {

class ConnectedGroups {
 public:
  using Spaces = std::set<std::uint32_t>;
  // `most`: open connections, each of a different set of spaces, that one host may have reported.
  // Further reports of that host are dropped, which bounds the memory.
  explicit ConnectedGroups(std::size_t most = 4096) : most_(most) {}

  // MPI_Comm_spawn connects parent and child before either reports it.
  void spawned(std::uint32_t parent, std::uint32_t child);
  // `host` reports that processes of `spaces` have connected, and confirms it for the spaces in
  // `own`. The connection holds once each of its spaces has been confirmed. The first connection of
  // parent and child is that of MPI_Comm_spawn itself, so it adds no further one.
  void connect(std::uint32_t host, const Spaces& spaces, const Spaces& own);
  // `host` reports the end of a connection, which ends when all hosts that had reported it have
  // done so. Open MPI reports no connection after MPI_Comm_spawn: host 0, the launcher's, may end
  // one that spawned() made.
  void disconnect(std::uint32_t host, const Spaces& spaces);
  // All processes of the space have ended.
  void closed(std::uint32_t space);
  // `space` and all spaces connected to it, directly or through others.
  [[nodiscard]] Spaces group_of(std::uint32_t space) const;

 private:
  struct Connection {
    Spaces spaces;
    Spaces confirmed;
    bool by_spawn = false;  // MPI_Comm_spawn made it; not confirmed yet
    // Host -> number of reported connections minus disconnections.
    std::map<std::uint32_t, std::uint64_t> times = {};
    [[nodiscard]] bool holds() const { return by_spawn || confirmed == spaces; }
  };
  const std::size_t most_;
  std::vector<Connection> connections_;
};

}  // namespace regroup::pmi
