// Where members go within a machine, as mpirun's --map-by, --rank-by, --bind-to and their relatives
// say it.
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

// Parts of a machine, from the smallest. kPackage is "socket" too.
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

// How members are dealt out. The default is the launcher's own choice.
struct MapBy {
  enum class Kind : std::uint8_t {
    kDefault,
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
  std::uint32_t cpus = 0;      // PE=N: cores (or hardware threads) of each member; 0: not said
  bool span = false;           // as if all hosts were one
  std::optional<bool> oversubscribe;
  bool no_local = false;                // none on the launcher's host
  std::optional<bool> hwthread_cpus;    // a slot is a hardware thread, not a core
  std::string file;                     // kSequence, kRankFile
  std::vector<std::uint32_t> cpu_list;  // kCpuList: each member gets all of them ...
  bool ordered = false;                 // ... or one of them, in turn
  std::string device;                   // kDistance: the device to be near to
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
  std::uint32_t count = 1;  // of units for each member (hydra's core:2)
  bool overload_allowed = false;
  bool if_supported = false;                          // go on unbound where binding is not possible
  std::vector<std::vector<std::uint32_t>> cpu_lists;  // kCpuList: one per member, used in turn
  bool operator==(const BindTo&) const = default;
};

// On which GPUs: where rings are fastest, on the fewest hosts, on the most, or what is worth least
// to others.
enum class Packing : std::uint8_t { kBest, kPack, kSpread, kAny };

struct Mapping {
  MapBy map;
  RankBy rank;
  BindTo bind;
  std::vector<RankPlace> ranks;       // of the rank file
  std::vector<std::string> sequence;  // --map-by seq: the host of each rank
  std::optional<Packing> packing;     // --placement: each member gets a GPU
  std::uint32_t gpus = 0;             // --gpus-per-rank: so many; 0: not said
  std::string gpu_label;              // --gpu-label: only GPUs of this label or product; "": any
  MemoryPolicy memory = MemoryPolicy::kKernel;
  std::string machine;  // --topology: file that describes each host; "": look at it
  std::string fabric;   // --fabric: file that describes the network between hosts; "": none
  // Members use no other processors; empty: all of the affinity mask.
  std::vector<std::uint32_t> cpu_set;
  bool operator==(const Mapping&) const = default;
};

// Each changes what `text` speaks of and leaves the rest as it was, so that options may be given
// one after the other. kInvalidArgument says which word of `text` is not understood.
[[nodiscard]] base::Status parse_map_by(std::string_view text, MapBy& out);
[[nodiscard]] base::Status parse_rank_by(std::string_view text, RankBy& out);
[[nodiscard]] base::Status parse_bind_to(std::string_view text, BindTo& out);

[[nodiscard]] base::Status parse_packing(std::string_view text, Packing& out);

// "0,2-5" as numbers in the order written. At most 4096 of them.
[[nodiscard]] base::Status parse_cpu_list(std::string_view text, std::vector<std::uint32_t>& out);

}  // namespace regroup::spec
