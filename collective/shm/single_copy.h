// The locations of their memory that members exchange, and copies by CMA (single_copy.cc).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "collective/shm/cma.h"
#include "collective/shm/factory.h"
#include "collective/shm/sync_points.h"
#include "regroup/operation.h"

namespace regroup::collective::shm {

inline constexpr std::uint64_t kNotInArena = ~0ULL;  // the offset of memory outside the arena

struct Offsets {
  std::uint64_t in;
  std::uint64_t out;
  std::int64_t numa_node;  // -1: several
};
// The payload of a member whose memory lies outside the arena.
[[nodiscard]] inline Input not_in_arena() {
  static constexpr Offsets kAtAll{kNotInArena, kNotInArena, -1};
  return std::as_bytes(std::span(&kAtAll, 1));
}

struct Announced {
  Offsets offsets;
  RemoteBuffer memory;
};
static_assert(sizeof(Announced) <= SyncPoints::kPayload);

// True if CMA supports operations of this kind, in which ranks only receive copies.
[[nodiscard]] bool supports_single_copy(Kind kind);
// True if CMA is faster than the bounce buffers, for `ranks` members and blocks of `block` bytes.
[[nodiscard]] bool single_copy_pays(Kind kind, std::size_t block, std::size_t ranks);

// Decides which operations try CMA, and reads the memory that members expose for the current
// operation. Members that run the same operations decide alike. Used by one thread.
class SingleCopy {
 public:
  explicit SingleCopy(SingleCopyMode mode) : mode_(mode) {}

  // True if the next operation of `kind`, with blocks of `block` bytes and `ranks` members, offers
  // CMA. To be called once for each operation of Travel::kInChunks.
  [[nodiscard]] bool tries(Kind kind, std::size_t block, std::size_t ranks);
  // The payload for the point at which all members expose their memory; valid until the next call.
  [[nodiscard]] Input announce(const Offsets& offsets, const RemoteBuffer& memory);
  // To be called after that point; `payload_of(r)` is the payload of rank r. True if the
  // contribution of every rank of `o` can be read in place. If not, the next kSkips operations of
  // this kind probably could not either, and do not try.
  template <class PayloadOf>
  [[nodiscard]] bool collect(const Operation& o, std::size_t ranks, const PayloadOf& payload_of) {
    memory_.resize(ranks);
    bool all = true;
    for (std::size_t r = 0; r < ranks; ++r) {
      Announced theirs;
      std::memcpy(&theirs, payload_of(r), sizeof theirs);
      memory_[r] = theirs.memory;
      const bool contributes = !from_root(o.kind) || static_cast<int>(r) == o.root;
      all = all && (!contributes || theirs.offsets.in != kNotInArena || theirs.memory.address != 0);
    }
    if (!all) skips_[static_cast<std::size_t>(o.kind)] = kSkips;
    succeeded_ = 1;
    return all;
  }
  // Fills `to` from offset `at` of the memory of `rank`. False: it could not, and this member will
  // vote so.
  [[nodiscard]] bool read(std::size_t rank, std::size_t at, Output to) {
    succeeded_ = cma_read(memory_[rank], at, to) ? 1 : 0;
    return succeeded_ != 0;
  }
  // The payload for the point at which all members vote: whether this member has read all that it
  // needs.
  [[nodiscard]] Input vote() const { return std::as_bytes(std::span(&succeeded_, 1)); }
  // To be called after that point. True if all members could read: the operation is complete.
  // Otherwise it must use another path, and no later operation tries CMA.
  template <class PayloadOf>
  [[nodiscard]] bool count_votes(std::size_t ranks, const PayloadOf& payload_of) {
    for (std::size_t r = 0; r < ranks; ++r) {
      std::uint64_t succeeded = 0;
      std::memcpy(&succeeded, payload_of(r), sizeof succeeded);
      possible_ = possible_ && succeeded != 0;
    }
    done_ += possible_ ? 1 : 0;
    return possible_;
  }
  [[nodiscard]] std::uint64_t done() const { return done_; }  // operations completed by CMA

 private:
  static constexpr std::uint8_t kSkips = 15;

  const SingleCopyMode mode_;
  bool possible_ = true;                  // false once a member could not read
  std::array<std::uint8_t, 16> skips_{};  // by kind: number of operations left that do not try
  std::uint64_t done_ = 0;
  // State of the current operation.
  Announced announced_{};
  std::vector<RemoteBuffer> memory_;  // by rank
  std::uint64_t succeeded_ = 0;       // 1: this rank read all that it needed
};

}  // namespace regroup::collective::shm
