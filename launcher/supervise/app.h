// What the members of a job run, and what belongs to one of them alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/fd.h"
#include "core/world.h"
#include "launcher/options/request.h"

namespace regroup::launcher {

// One program of a job, ready to be started.
struct App {
  std::string path;  // as find_program() found it
  std::vector<std::string> argv;
  Environment environment;
  std::string wdir;  // "": the current folder
  std::string role;  // "": it has none
  Limits limits;
};

// The place of a member at the start of its process.
struct Place {
  core::MemberId member = 0;
  std::uint32_t rank = 0;
  std::uint32_t world_size = 1;
  std::uint32_t app = 0;    // number of its App in the job
  std::uint32_t index = 0;  // among the members of that App
  std::uint32_t space = 0;  // 0: started with the job; n: by its n-th MPI_Comm_spawn
  std::uint32_t host = 0;   // number of its host in the job; those of one space on it:
  std::optional<std::uint32_t> local_rank, local_size;  // none: as in the world
};

// By which its output is known: who takes another's place in an elastic job has a number of its own.
[[nodiscard]] inline std::uint32_t number_of(const Place& place) {
  return place.space == 0 ? place.member : place.rank;
}

// What one member gets besides what its App says.
struct Extras {
  Environment environment;    // overrides the App's
  core::Fd inherited;         // becomes descriptor kInheritedFd of the member; may be none
  std::uint32_t threads = 1;  // OMP_NUM_THREADS, unless the App says it
  std::vector<int> cores;     // operating system numbers it is bound to; empty: not bound
};
inline constexpr int kInheritedFd = 3;

}  // namespace regroup::launcher
