// The programs of a job, and the settings of a single member.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "launcher/spec/request.h"
#include "proto/world.h"

namespace regroup::process {

// One program of a job, ready to be started.
struct App {
  std::string path;  // as find_program() found it
  std::vector<std::string> argv;
  spec::Environment environment;
  std::string wdir;  // "": the current folder
  std::string role;  // "": none
  spec::Limits limits;
};

// Identity and position of a member when its process starts.
struct Place {
  proto::MemberId member = 0;
  std::uint32_t rank = 0;
  std::uint32_t world_size = 1;
  std::uint32_t app = 0;    // number of its App in the job
  std::uint32_t index = 0;  // among the members of that App
  std::uint32_t space = 0;  // 0: started with the job; n: by its n-th MPI_Comm_spawn
  std::uint32_t host = 0;   // number of its host in the job
  // Rank and number among the members of its space on that host; empty: as in the world.
  std::optional<std::uint32_t> local_rank;
  std::optional<std::uint32_t> local_size;
};

// The number that labels the member's output: in an elastic job a replacement gets a number of its
// own.
[[nodiscard]] inline std::uint32_t number_of(const Place& place) {
  return place.space == 0 ? place.member : place.rank;
}

// Settings of one member in addition to its App.
struct Extras {
  spec::Environment environment;  // overrides the App's
  base::Fd inherited;             // becomes descriptor kInheritedFd of the member; may be invalid
  std::uint32_t threads = 1;      // OMP_NUM_THREADS, unless the App says it
  std::vector<int> cores;         // operating system numbers it is bound to; empty: not bound
};
inline constexpr int kInheritedFd = 3;

}  // namespace regroup::process
