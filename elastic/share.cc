// Lengths come from other hosts and must pass check_length() before use.
#include "elastic/share.h"

#include <fmt/format.h>

#include <algorithm>

namespace regroup::elastic {

Share::Share(const shmem::Arena& arena, Chunks chunks, std::uint64_t used)
    : crcs(std::as_writable_bytes(
          arena.snapshot_crcs().subspan(chunks.begin, chunks.end - chunks.begin))),
      data(arena.snapshot().subspan(chunks.begin * shmem::kSnapshotChunk,
                                    std::min(chunks.end * shmem::kSnapshotChunk, used) -
                                        chunks.begin * shmem::kSnapshotChunk)) {}

base::Status check_length(const shmem::Arena& arena, int from, std::uint64_t length,
                          std::optional<std::uint64_t> expected) {
  const std::uint64_t room = arena.snapshot().size();
  if (length > room) {
    return base::data_loss(fmt::format("state: rank {} sends {} bytes, only {} are reserved here",
                                       from, length, room));
  }
  if (expected && length != *expected) {
    return base::data_loss(
        fmt::format("state: rank {} sends a state of {} bytes, other ranks one of {}", from, length,
                    *expected));
  }
  return {};
}

}  // namespace regroup::elastic
