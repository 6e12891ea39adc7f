// Which spaces live and die together: those that MPI_Comm_spawn, or MPI_Comm_accept and connect, has joined
// and MPI_Comm_disconnect has not parted. Hosts tell of both; each is believed of the spaces it speaks for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

namespace regroup::pmi {

class Families {
 public:
  using Spaces = std::set<std::uint32_t>;
  // `most`: meetings of different spaces that one host may have told of, and that are not over.
  explicit Families(std::size_t most = 4096) : most_(most) {}

  void spawned(std::uint32_t parent, std::uint32_t child);
  // `host` says that processes of `spaces` have met, and speaks for those in `own`: they are joined when
  // somebody has said so for each of them. The first meeting of parent and child is that of MPI_Comm_spawn
  // itself, and joins them no further. Of a host that has told of `most` of them, others are not heard.
  void met(std::uint32_t host, const Spaces& spaces, const Spaces& own);
  // The same host says that they have parted; when all that told of the meeting have, they are not joined.
  // Open MPI tells of no meeting behind MPI_Comm_spawn: host 0, the launcher's, may part those that it
  // joined.
  void parted(std::uint32_t host, const Spaces& spaces);
  // The space is no more.
  void closed(std::uint32_t space);
  // It, and all that are joined with it, directly or through others.
  [[nodiscard]] Spaces of(std::uint32_t space) const;

 private:
  struct Meeting {
    Spaces spaces;
    Spaces spoken_for;
    bool by_spawn = false;                              // they are yet to meet
    std::map<std::uint32_t, std::uint64_t> times = {};  // by host: told of, and not parted
    [[nodiscard]] bool joins() const { return by_spawn || spoken_for == spaces; }
  };
  const std::size_t most_;
  std::vector<Meeting> meetings_;
};

}  // namespace regroup::pmi
