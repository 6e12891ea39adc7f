// The small contributions of one operation, in inline chunks (inline_chunk.h): this rank writes its
// own for its peers and fetches theirs, which may arrive in any order.
#pragma once

#include <cstddef>
#include <vector>

#include "collective/shm/bounce_buffer.h"
#include "collective/shm/sync_points.h"
#include "collective/signature.h"
#include "regroup/operation.h"

namespace regroup::collective::shm {

// Of one operation after the other, each with at most kInlineChunks chunks of a rank. `block`:
// bytes of a rank's block, the same in all calls of an operation. Owned and used by one thread.
// Nothing blocks.
class InlineExchange {
 public:
  // For rank `rank`. Both must outlive it, and describe the same members.
  InlineExchange(const BounceBuffers& buffers, SyncPoints& sync, int rank)
      : buffers_(buffers), sync_(sync), rank_(rank) {}

  // A new operation: nothing has been fetched.
  void begin() { fetched_ranks_ = 0; }
  // Writes what the peers need, before this rank arrives at the point that ends the epoch, under
  // the tag of that point for an operation with `signature`. `keeps`: copies the own contribution
  // to destination(), because the output overwrites it.
  void write(const Operation& o, std::size_t block, const CollectiveSignature& signature,
             bool keeps);
  // After that arrival: copies what has come to destination(). True when all contributions that
  // this rank needs are there; otherwise the next call continues.
  [[nodiscard]] bool fetch(const Operation& o, std::size_t block);
  // The rank whose contribution fetch() waits for.
  [[nodiscard]] std::size_t missing_rank() const { return fetched_ranks_; }
  // Where the contribution of `rank` goes: to the output, or to memory of this object if it is to
  // be reduced.
  [[nodiscard]] Output destination(const Operation& o, std::size_t block, std::size_t rank);

 private:
  const BounceBuffers& buffers_;
  SyncPoints& sync_;
  const int rank_;
  std::vector<std::byte> to_reduce_;  // a section a rank; empty until it is needed
  std::size_t fetched_ranks_ = 0;     // ranks below are complete
};

}  // namespace regroup::collective::shm
