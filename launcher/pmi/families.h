// Which spaces live and die together: those that MPI_Comm_spawn, or MPI_Comm_accept and connect, has joined
// and MPI_Comm_disconnect has not parted.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

namespace regroup::pmi {

class Families {
 public:
  void spawned(std::uint32_t parent, std::uint32_t child);
  // The first meeting of parent and child is that of MPI_Comm_spawn itself, and joins them no further.
  void met(const std::set<std::uint32_t>& spaces);
  void parted(const std::set<std::uint32_t>& spaces);
  // The space is no more.
  void closed(std::uint32_t space);
  // It, and all that are joined with it, directly or through others.
  [[nodiscard]] std::set<std::uint32_t> of(std::uint32_t space) const;

 private:
  struct Tie {
    std::set<std::uint32_t> spaces;
    bool by_spawn = false;  // they are yet to meet
  };
  std::vector<Tie> ties_;
};

}  // namespace regroup::pmi
