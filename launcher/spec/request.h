// What a command line, an app file or a job file asks for, as plain data: the programs of a job and
// the rules they run under. Parsers fill it in; launcher/job turns it into processes.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "proto/on_hang.h"

namespace regroup::spec {

using Environment = std::map<std::string, std::string>;

// Limits of one member; 0: no limit.
struct Limits {
  double cpus = 0;
  std::uint64_t memory_bytes = 0;
  bool operator==(const Limits&) const = default;
};

// One program of a job: an app context of mpirun (what stands between colons), or a role of a
// cluster.
struct AppRequest {
  std::string role;                       // "": it has none
  std::optional<std::uint32_t> count;     // of its members; absent: one per slot
  std::optional<std::uint32_t> per_node;  // -N, -ppn
  std::vector<std::string> command;
  std::string wdir;         // "": the current folder
  std::string search_path;  // where the program is searched; "": PATH of `environment`
  Environment environment;  // complete
  Limits limits;
};

// Ports that each member of a role gets besides the one in TF_CONFIG.
struct PortRequest {
  std::string label;
  std::uint32_t count = 1;     // of each member
  std::uint16_t begin_at = 0;  // member i has count ports from begin_at + i * count on; 0: any
  bool operator==(const PortRequest&) const = default;
};

struct Role {
  std::string name;
  std::uint32_t count = 1;
  std::uint32_t gpus = 0;  // of each member
  std::vector<PortRequest> ports;
  std::uint32_t min_failed = 1;     // so many members that failed for good end the job; 0: never
  std::uint32_t min_succeeded = 0;  // so many members that ended well end the job well; 0: never
  bool operator==(const Role&) const = default;
};

// Streams of a host's ranks as torchrun numbers them: 1 is standard output, 2 standard error, 3
// both.
struct StreamChoice {
  std::uint8_t all = 0;               // of each local rank ...
  std::vector<std::uint8_t> of = {};  // ... or, where it is not empty, of these alone
  [[nodiscard]] bool any() const { return all != 0 || !of.empty(); }
  [[nodiscard]] bool has(std::uint32_t local_rank, std::uint8_t stream) const {
    const bool listed = local_rank < of.size();
    return ((listed ? of[local_rank] : of.empty() ? all : 0) & stream) != 0;
  }
};

// torchrun's files of members' output: FOLDER_JOB/attempt_0/LOCAL_RANK/stdout.log and stderr.log,
// with _HOST behind JOB on other hosts, which may see the same folder.
struct LogRequest {
  StreamChoice redirect;  // into a file instead of our own output
  StreamChoice tee;       // into a file, and with a prefix to our own output
  std::vector<std::uint32_t> shown =
      {};  // local ranks of which our own output gets something; empty: all
  std::string folder = {};
  std::string prefix = {};  // with ${local_rank} and ${rank}
  std::string job = {};     // its id; set where members are started
  std::uint32_t host = 0;   // its number in the job, likewise
  [[nodiscard]] bool any() const { return redirect.any() || tee.any(); }
};

// How members' output is written.
struct OutputRequest {
  enum class Tag : std::uint8_t { kNone, kJobRank, kRank };  // "", "[1,0]<stdout>:", "[0] "
  Tag tag = Tag::kNone;
  bool timestamp = false;     // begin each line with the time
  bool merge_stderr = false;  // members' standard error becomes standard output
  std::string folder;      // --output-filename: also into FOLDER/1/rank.N/stdout and stderr; "": no
  bool job_folder = true;  // the "1" in that path
  bool copy = true;        // ... and to our own output as well
  std::string
      stdout_pattern;  // into the file of this name instead of our own; %r is the rank, %h the host
  std::string stderr_pattern;
  bool terminals = true;  // members write to terminals where our own output is one
  bool raw = false;       // as it comes, not in whole lines; only where lines get no tag
  LogRequest log = {};
};

// The members that receive standard input.
struct StdinRequest {
  enum class To : std::uint8_t { kRank, kAll, kNone };
  To to = To::kRank;
  std::uint32_t rank = 0;
  bool own = false;  // descriptor 0 is a pipe of this process, and nobody else's
};

// Whose rules of exit status and signals hold.
enum class Compat : std::uint8_t { kOpenMpi, kMpich };

// What to do with a member that makes no progress while others wait for it.
struct HangRequest {
  base::Duration timeout = std::chrono::seconds(60);  // --hang-timeout; 0: nobody is watched
  proto::OnHang action = proto::OnHang::kReport;      // --on-hang
};

// Where launcher/preempt learns that this host is being taken away. "": nowhere.
struct NoticeRequest {
  std::string file;
  std::string command;
  std::string address;
  base::Duration every = std::chrono::seconds(1);
  [[nodiscard]] bool any() const { return !file.empty() || !command.empty() || !address.empty(); }
};

// --host-discovery-script: a command that prints HOST or HOST:SLOTS a line. "": there is none.
struct DiscoveryRequest {
  std::string script;
  std::uint32_t slots = 0;  // of a host that comes without; 0: as many as it has cores
};

// --mem-bind: where members' memory comes from. kKernel: as the system does it, from the node of
// the core that touches it first.
enum class MemoryPolicy : std::uint8_t { kKernel, kLocal, kBind, kPrefer, kInterleave };

// --checkpoint and what belongs to it.
struct CheckpointRequest {
  std::string directory;      // "": none are made
  std::string shared;         // a second one, behind it; "": none
  std::uint64_t every = 100;  // steps
  std::uint64_t memory = 0;   // most that a save may take; 0: no limit
  std::uint32_t keep = 3;
  std::uint64_t keep_every = 0;  // steps; 0: no others
  bool operator==(const CheckpointRequest&) const = default;
};

}  // namespace regroup::spec
