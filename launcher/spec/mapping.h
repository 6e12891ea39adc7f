// The placement of members as mpirun's options --map-by, --rank-by, --bind-to and similar ones give
// it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "launcher/spec/rankfile.h"
#include "launcher/spec/request.h"

namespace regroup::spec {

// Parts of a machine, from the smallest. kPackage is also called "socket".
enum class Unit : std::uint8_t {
  kHwThread,
  kCore,
  kL1Cache,
  kL2Cache,
  kL3Cache,
  kNuma,
  kPackage,
  kNode
};

[[nodiscard]] std::string_view unit_name(Unit unit);

// --map-by: the order in which members are assigned to parts of machines.
struct MapBy {
  enum class Kind : std::uint8_t {
    kDefault,  // the launcher chooses
    kSlot,
    kUnit,
    kPerUnit,
    kSequence,
    kRankFile,
    kCpuList,
    kDistance
  };
  Kind kind = Kind::kDefault;
  Unit unit = Unit::kCore;  // kUnit: round-robin over these; kPerUnit: `per_unit` on each of these
  std::uint32_t per_unit = 0;  // ppr:N:OBJECT
  std::uint32_t cpus = 0;      // PE=N: cores (or hardware threads) per member; 0: not given
  bool span = false;           // treat all hosts as one
  std::optional<bool> oversubscribe;
  bool no_local = false;                // no members on the launcher's host
  std::optional<bool> hwthread_cpus;    // a slot is a hardware thread, not a core
  std::string file;                     // for kSequence and kRankFile
  std::vector<std::uint32_t> cpu_list;  // kCpuList: each member gets all of these cpus
  bool ordered = false;                 // kCpuList: each member gets one of them, in turn
  std::string device;                   // kDistance: members go near this device
  bool operator==(const MapBy&) const = default;
};

struct RankBy {
  enum class Kind : std::uint8_t { kDefault, kSlot, kNode, kFill, kSpan, kUnit };
  Kind kind = Kind::kDefault;
  Unit unit = Unit::kCore;  // kUnit
  bool span = false;
  bool fill = false;
  bool operator==(const RankBy&) const = default;
};

struct BindTo {
  enum class Kind : std::uint8_t { kDefault, kNone, kUnit, kCpuList };
  Kind kind = Kind::kDefault;
  Unit unit = Unit::kCore;
  std::uint32_t count = 1;  // number of units per member (hydra's core:2)
  bool overload_allowed = false;
  bool if_supported = false;                          // if binding is impossible, run unbound
  std::vector<std::vector<std::uint32_t>> cpu_lists;  // kCpuList: one per member, used in turn
  bool operator==(const BindTo&) const = default;
};

// --placement: kBest: the GPUs with the fastest rings; kPack: on the fewest hosts; kSpread: on the
// most hosts; kAny: the GPUs that are least useful to other jobs.
enum class Packing : std::uint8_t { kBest, kPack, kSpread, kAny };

struct Mapping {
  MapBy map;
  RankBy rank;
  BindTo bind;
  std::vector<RankPlace> ranks;       // the entries of the rank file
  std::vector<std::string> sequence;  // --map-by seq: the host of each rank
  std::optional<Packing> packing;     // --placement: each member gets a GPU
  std::uint32_t gpus = 0;             // --gpus-per-rank; 0: not given
  std::string gpu_label;              // --gpu-label: only GPUs with this label or product; "": any
  MemoryPolicy memory = MemoryPolicy::kKernel;
  std::string machine;  // --topology: file that describes each host; "": detect it
  std::string fabric;   // --fabric: file that describes the network between hosts; "": none
  // The only processors that members may use; empty: all of the affinity mask.
  std::vector<std::uint32_t> cpu_set;
  bool operator==(const Mapping&) const = default;
};

// Each sets the fields of `out` that `text` gives and leaves the others unchanged, so that options
// can be combined. kInvalidArgument names the unknown word of `text`.
[[nodiscard]] base::Status parse_map_by(std::string_view text, MapBy& out);
[[nodiscard]] base::Status parse_rank_by(std::string_view text, RankBy& out);
[[nodiscard]] base::Status parse_bind_to(std::string_view text, BindTo& out);

[[nodiscard]] base::Status parse_packing(std::string_view text, Packing& out);

// Parses "0,2-5" to at most 4096 numbers, in the given order.
[[nodiscard]] base::Status parse_cpu_list(std::string_view text, std::vector<std::uint32_t>& out);

}  // namespace regroup::spec
