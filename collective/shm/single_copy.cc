// Single-copy operations: members read each other's ordinary memory in place (CMA). At the first
// synchronisation point all members exchange addresses; then each reads its part; at the second
// point all report whether they could. If one could not, for whatever reason, the operation starts
// again through the bounce buffers, and this communicator does not try CMA again. A member that
// cannot read because its peer is dead waits for that peer there, like all others. The inputs are
// still intact, since memory that an in-place operation overwrites before all have read it is not
// exposed. communicator.cc explains why exposed memory does not change while a peer reads it.
#include "collective/shm/single_copy.h"

namespace regroup::collective::shm {
namespace {

constexpr std::size_t kMinScatter = 64 << 10;  // smallest block of a scatter by CMA
// Results above this limit should bypass the cache; the kernel's stores do not.
constexpr std::size_t kMaxPaying = 8 << 20;

}  // namespace

bool supports_single_copy(Kind kind) {
  return kind == Kind::kAllgather || kind == Kind::kGather || kind == Kind::kScatter ||
         kind == Kind::kAlltoall || kind == Kind::kBroadcast;
}

// Measured: docs/design/single_copy.md. For other kinds the bounce buffers are faster: several
// readers of the same data find it in their shared cache, and members that send and receive at the
// same time share the work.
bool single_copy_pays(Kind kind, std::size_t block, std::size_t ranks) {
  return kind == Kind::kScatter && ranks >= 3 && block >= kMinScatter && block <= kMaxPaying;
}

bool SingleCopy::tries(Kind kind, std::size_t block, std::size_t ranks) {
  if (!possible_ || mode_ == SingleCopyMode::kNever || ranks == 1 || !supports_single_copy(kind))
    return false;
  if (mode_ == SingleCopyMode::kAlways) return true;
  if (!single_copy_pays(kind, block, ranks)) return false;
  std::uint8_t& skips = skips_[static_cast<std::size_t>(kind)];
  if (skips == 0) return true;
  skips -= 1;
  return false;
}

Input SingleCopy::announce(const Offsets& offsets, const RemoteBuffer& memory) {
  announced_ = {offsets, memory};
  return std::as_bytes(std::span(&announced_, 1));
}

}  // namespace regroup::collective::shm
