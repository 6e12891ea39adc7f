// Exchanges the small contributions of one operation in inline chunks (inline_chunk.h): this rank
// writes its own for its peers and fetches theirs, in whatever order they arrive.
#pragma once

#include <cstddef>
#include <vector>

#include "collective/shm/bounce_buffer.h"
#include "collective/shm/sync_points.h"
#include "collective/signature.h"
#include "regroup/operation.h"

namespace regroup::collective::shm {

// Works on one operation after the other, each with at most kInlineChunks chunks per rank. `block`
// is the size in bytes of a rank's block, the same in all calls for an operation. Used by one
// thread. Nothing blocks.
class InlineExchange {
 public:
  // For rank `rank`. `buffers` and `sync` must outlive it and have the same members.
  InlineExchange(const BounceBuffers& buffers, SyncPoints& sync, int rank)
      : buffers_(buffers), sync_(sync), rank_(rank) {}

  // Begins a new operation, of which nothing has been fetched.
  void begin() { fetched_ranks_ = 0; }
  // Writes what the peers need of this rank's contribution, tagged for the point that ends this
  // epoch; call it before arriving there. `keeps`: also copies the contribution to destination(),
  // because the output will overwrite it.
  void write(const Operation& o, std::size_t block, const CollectiveSignature& signature,
             bool keeps);
  // To be called after that arrival: copies the chunks that have arrived to destination(). True
  // once this rank has all contributions that it needs; otherwise the next call continues.
  [[nodiscard]] bool fetch(const Operation& o, std::size_t block);
  // The rank whose contribution fetch() waits for.
  [[nodiscard]] std::size_t missing_rank() const { return fetched_ranks_; }
  // The memory that receives the contribution of `rank`: the output, or memory of this object if
  // the contribution is to be reduced.
  [[nodiscard]] Output destination(const Operation& o, std::size_t block, std::size_t rank);

 private:
  const BounceBuffers& buffers_;
  SyncPoints& sync_;
  const int rank_;
  std::vector<std::byte> to_reduce_;  // a section for each rank; empty until needed
  std::size_t fetched_ranks_ = 0;     // all ranks below this one have been fetched
};

}  // namespace regroup::collective::shm
