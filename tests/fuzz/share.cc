// What the writers of a snapshot on another host say of its length, one after the other: refused,
// or their shares lie in the arena, one behind the other. The input is these numbers, 8 bytes each.
#include "elastic/share.h"

#include <cstdint>
#include <cstring>
#include <utility>

#include "tests/fuzz/require.h"

using namespace regroup;
using regroup::fuzz::require;

namespace {

constexpr std::uint64_t kRoom = 3 * shmem::kSnapshotChunk + 17;

const shmem::Arena& arena() {
  static const shmem::Arena kArena = [] {
    auto made = shmem::Arena::create({.elements = 1, .snapshot_bytes = kRoom});
    require(made.ok());
    return std::move(*made);
  }();
  return kArena;
}

bool lies_in(std::span<const std::byte> part, std::span<const std::byte> whole) {
  return part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::size_t writers = size / sizeof(std::uint64_t);
  const std::byte* end = arena().snapshot().data();
  std::optional<std::uint64_t> told;
  for (std::size_t writer = 0; writer < writers; ++writer) {
    std::uint64_t length = 0;
    std::memcpy(&length, data + writer * sizeof length, sizeof length);
    const base::Status status =
        elastic::check_length(arena(), static_cast<int>(writer), length, told);
    require(status.ok() == (length <= kRoom && length == told.value_or(length)));
    if (!status.ok()) return 0;
    told = length;
    const elastic::Chunks chunks = elastic::share_of(writer, writers, length);
    if (chunks.begin == chunks.end) continue;
    const elastic::Share share(arena(), chunks, length);
    require(share.data.data() == end && lies_in(share.data, arena().snapshot()));
    require(lies_in(share.crcs, std::as_bytes(arena().snapshot_crcs())));
    end += share.data.size();
  }
  require(!told || end == arena().snapshot().data() + *told);
  return 0;
}
