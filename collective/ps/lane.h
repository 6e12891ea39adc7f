// Lanes: shared memory in which clients of a host leave messages for the thread of a shard. A lane
// belongs to one client and is a ring of messages, oldest first. A message stays there until a
// server has dealt with it, so that the successor of a server that was killed finds it again, under
// its number. Memory of clients is never trusted: check_message() comes before every use.
//
// Order, which a death at any instant must find: the client writes a message, then `written`, then
// rings; the server applies it, writes its answer, then `read`, then rings.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "collective/ps/clocks.h"
#include "collective/ps/shard_lock.h"
#include "collective/ps/steps.h"
#include "collective/ps/table.h"
#include "shmem/doorbell.h"

namespace regroup::collective::ps {

using Bell = shmem::Doorbell<shmem::RealPolicy>;

struct LaneSpec {
  std::uint32_t shard = 0;
  std::uint32_t shards = 1;
  std::uint32_t most_segments = 1;  // of the shard's store
  std::uint32_t lanes = 64;
  std::uint64_t lane_bytes = 16 << 20;
};

struct LanesHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t reserved;
  LaneSpec spec;
  alignas(128) pthread_mutex_t attaching;   // robust: held while lanes are taken and freed
  alignas(128) Bell server;                 // the shard's thread sleeps here
  std::atomic<std::uint64_t> process;       // the server's pid
  std::atomic<std::uint64_t> served_times;  // servers that have begun to serve
  // Grows at least ten times a second while the shard's thread, or one that waits for the shard's
  // lock, gets on. A line of its own: clients do not wait for it.
  alignas(128) std::atomic<std::uint64_t> beats;
  // Of shard 0: turns of all clients of mode ssp, by how many clocks the slowest client was behind
  // at their first pull; the last one has all beyond.
  alignas(128) std::array<std::atomic<std::uint64_t>, 16> turns_by_staleness;
  StepWords steps;  // of mode sync
};

struct Lane {
  alignas(128) pthread_mutex_t holder;  // robust: a thread of the client holds it
  std::atomic<std::uint64_t> client;    // number + 1; 0: free
  std::atomic<std::uint64_t> process;   // the client's pid, on its host
  std::atomic<std::uint64_t> damaged;   // 1: the server reads no more; `why` says what it found
  // Bytes since the lane was made; message boundaries. read <= written <= read + lane_bytes.
  alignas(128) std::atomic<std::uint64_t> written;  // by the client
  alignas(128) std::atomic<std::uint64_t> read;     // by the server
  Bell bell;                                        // the client sleeps here
  alignas(64) std::array<char, 256> why;
  // Of shard 0, by the client. `name`, `host` and `consistency`, a to_word(), before it has the
  // lane.
  std::array<char, 64> name;
  std::array<char, 64> host;  // where its process is
  std::atomic<std::uint64_t> consistency;
  alignas(128) ClockWord<shmem::RealPolicy> clock;
  std::atomic<std::uint64_t> waits_for;       // number + 1 of the lane whose clock it waits for
  std::atomic<std::uint64_t> held_up_others;  // nanoseconds in which others waited for its clock
  alignas(64) Bell clock_bell;  // the client sleeps here while it waits for a clock or a step
};

// Lane::name of a lane that is taken, printable; "client 7" of one without.
[[nodiscard]] std::string name_of_client(const Lane& lane);
// Lane::host, printable.
[[nodiscard]] std::string host_of_client(const Lane& lane);

enum class MessageKind : std::uint32_t {
  kPad = 1,  // the rest of the ring that a message did not fit in; no answer
  kOpen,
  kPush,
  kLeafEnd,  // mode sync: the client has pushed all of a leaf
};
struct MessageHeader {
  std::uint64_t bytes;  // with the header; a multiple of kMessageUnit
  MessageKind kind;
  std::uint32_t parts;   // of a push
  std::uint64_t number;  // of a push: grows in its client, over all lanes
  double lr;
  std::uint32_t answer;  // by the server: base::Code
  // Of mode sync, in kPush and kLeafEnd; `number` of the latter counts the leaf's pushes here.
  std::uint32_t leaves;  // of a step; 0: another mode
  std::uint64_t step;
  std::uint64_t attempt;  // grows with each leaf that the client begins, or begins again
  std::uint32_t leaf;
  std::uint32_t of_several;  // 1: of a step of several stores
};
static_assert(sizeof(MessageHeader) == 64);
inline constexpr std::uint64_t kMessageUnit = 64;
// The header, then room for the text of an answer, then the content.
inline constexpr std::uint64_t kAnswerBytes = 448;
inline constexpr std::uint64_t kContentAt = sizeof(MessageHeader) + kAnswerBytes;

// The content of a push: parts; for each part its positions; from the next multiple of 64 on, for
// each part its gradients, which end at a multiple of 64.
struct PushPart {
  std::uint32_t range;
  std::uint32_t reserved;
  std::uint64_t keys;            // 0 for a dense range
  std::uint64_t gradient_bytes;  // of the compute dtype
};
// The content of kOpen.
struct OpenContent {
  std::uint64_t rows;
  Initializer init;
  OptimizerSpec optimizer;
  std::uint32_t dim;
  TableKind kind;
  Dtype dtype;
  TablePart part;
  std::array<char, kMaxNameBytes + 1> name;
};
[[nodiscard]] OpenContent content_of(const TableSpec& spec);
// kInvalidArgument: no spec that check() accepts.
[[nodiscard]] base::Result<TableSpec> spec_in(const OpenContent& content);

// Bytes of the message of a push with these parts.
[[nodiscard]] std::uint64_t bytes_of_push(std::span<const PushPart> parts);
// A push in a lane, or the places to write one to.
struct PushView {
  struct Part {
    std::uint32_t range;
    std::span<std::uint64_t> positions;
    std::span<std::byte> gradients;
  };
  std::vector<Part> parts;
};
// The places of a push at `message`, which has room for bytes_of_push(parts); writes the parts.
[[nodiscard]] PushView lay_out_push(std::byte* message, std::span<const PushPart> parts);
// The push at `message`, whose header the caller has copied and checked. kDataLoss: its parts are
// longer than it.
[[nodiscard]] base::Result<PushView> read_push(std::byte* message, const MessageHeader& header);

// A mapping of the lanes of one shard.
class Lanes {
 public:
  // A sealed memfd for lanes, formatted. Its descriptor closes on exec.
  [[nodiscard]] static base::Result<base::Fd> make(const LaneSpec& spec);
  // Maps them; `fd` may be closed afterwards. kDataLoss: these are no lanes of this version.
  [[nodiscard]] static base::Result<Lanes> open(int fd);

  Lanes(Lanes&& other) noexcept;
  Lanes& operator=(Lanes&&) = delete;
  ~Lanes();

  [[nodiscard]] const LaneSpec& spec() const { return spec_; }
  [[nodiscard]] LanesHeader& header() const { return *reinterpret_cast<LanesHeader*>(base_); }
  [[nodiscard]] Lane& lane(std::uint32_t number) const;
  // For clocks.h.
  [[nodiscard]] auto clock_words() const {
    return [this](std::uint32_t number) -> auto& { return lane(number).clock; };
  }
  [[nodiscard]] auto clock_bells() const {
    return [this](std::uint32_t number) -> auto& { return lane(number).clock_bell; };
  }
  // The message at `place`, a count of bytes as Lane::written is.
  [[nodiscard]] std::byte* at(std::uint32_t lane, std::uint64_t place) const;
  // Bytes from `place` to the end of the ring.
  [[nodiscard]] std::uint64_t to_end(std::uint64_t place) const {
    return spec_.lane_bytes - place % spec_.lane_bytes;
  }
  // Copies the header of the message at `place`, of which `available` bytes are written.
  // kDataLoss: it cannot be one.
  [[nodiscard]] base::Result<MessageHeader> check_message(std::uint32_t lane, std::uint64_t place,
                                                          std::uint64_t available) const;

 private:
  Lanes(std::byte* base, std::uint64_t bytes, const LaneSpec& spec)
      : base_(base), bytes_(bytes), spec_(spec) {}
  std::byte* base_;
  std::uint64_t bytes_;
  LaneSpec spec_;  // a copy, since the memory may change
};

}  // namespace regroup::collective::ps
