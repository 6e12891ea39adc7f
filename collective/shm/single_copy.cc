// Operations whose ordinary memory others read where it is. Behind the first rendezvous all know where; each
// reads what is for it, and in the second all say whether they could. If one could not, whatever the reason,
// the operation begins anew through the stages, and this communicator tries it no more: who cannot because
// the other is dead waits for it there like everybody else. Inputs are intact for that: what an operation in
// place overwrites before all have read it is not announced. communicator.cc says why nobody's memory changes
// while it is read.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "collective/shm/communicator.h"

namespace regroup::collective {
namespace {

constexpr std::size_t kReadAtOnce = 1 << 20;  // between looks at revoke and deadline
constexpr std::uint8_t kSkips = 15;
constexpr std::size_t kMinScatter = 64 << 10;  // bytes of a block
constexpr std::size_t kMaxPaying = 8 << 20;    // larger results go past the cache, which the kernel's do not

}  // namespace

bool supports_single_copy(Kind kind) {
  return kind == Kind::kAllgather || kind == Kind::kGather || kind == Kind::kScatter ||
         kind == Kind::kAlltoall || kind == Kind::kBroadcast;
}

// Measured: docs/design/single_copy.md. Elsewhere the stages are faster: what several read is read from the
// cache that they share, and members that give and take at the same time share the work.
bool single_copy_pays(Kind kind, std::size_t block, std::size_t ranks) {
  return kind == Kind::kScatter && ranks >= 3 && block >= kMinScatter && block <= kMaxPaying;
}

// Asked once for each operation that might.
bool ShmCommunicator::tries_single_copy(const Operation& o) {
  const SingleCopyMode when = engine_->single_copy();
  if (!single_copy_.possible || when == SingleCopyMode::kNever || plan_.is_copied || size() == 1)
    return false;
  if (!supports_single_copy(o.kind)) return false;
  if (when == SingleCopyMode::kAlways) return true;
  if (!single_copy_pays(o.kind, plan_.block, slots_.size())) return false;
  std::uint8_t& skips = single_copy_.skips[static_cast<std::size_t>(o.kind)];
  if (skips == 0) return true;
  skips -= 1;
  return false;
}

// The memory that others shall read, unless this rank overwrites it before all have.
std::span<const std::byte> ShmCommunicator::expose_memory(const Operation& o) {
  const bool overwritten = o.kind == Kind::kAlltoall && o.in.data() == o.out.data();
  single_copy_.announced = {offsets_, {}};
  if (plan_.contributes && !overwritten) {
    single_copy_.announced.memory = engine_->sign().expose(contribution_of(o));
  }
  return std::as_bytes(std::span(&single_copy_.announced, 1));
}

// Behind the rendezvous at which all announced theirs. True if all that is needed can be read where it is;
// else the next ones of its kind are likely to be like it, so they do without the rendezvous.
bool ShmCommunicator::collect_memory(const Operation& o) {
  single_copy_.memory.resize(slots_.size());
  bool all = true;
  for (std::size_t r = 0; r < slots_.size(); ++r) {
    Announced theirs;
    std::memcpy(&theirs, sync_.payload_of(r), sizeof theirs);
    single_copy_.memory[r] = theirs.memory;
    const bool contributes = !from_root(o.kind) || static_cast<int>(r) == o.root;
    all = all && (!contributes || theirs.offsets.in != kNotInArena || theirs.memory.address != 0);
  }
  if (!all) single_copy_.skips[static_cast<std::size_t>(o.kind)] = kSkips;
  return all;
}

// Takes what is for this rank; what lies in the arena, or is its own, without the kernel.
core::Status ShmCommunicator::read_all(const Pending& pending) {
  const Operation& o = pending.operation;
  const bool receives = o.kind == Kind::kGather      ? rank_ == o.root
                        : o.kind == Kind::kBroadcast ? rank_ != o.root
                                                     : true;
  const std::size_t ranks = slots_.size();
  single_copy_.succeeded = 1;
  for (std::size_t i = 0; receives && i < ranks && single_copy_.succeeded != 0; ++i) {
    const std::size_t r = (static_cast<std::size_t>(rank_) + i) % ranks;  // not all from one at a time
    if (from_root(o.kind) && static_cast<int>(r) != o.root) continue;
    const std::size_t from = is_split(o.kind) ? static_cast<std::size_t>(rank_) * plan_.block : 0;
    const Output to = o.out.subspan(from_root(o.kind) ? 0 : r * plan_.block, plan_.block);
    if (inputs_[r] != nullptr) {
      copy(to.data(), inputs_[r] + from, to.size(), plan_.stores_from(r, rank_));
      continue;
    }
    for (std::size_t at = 0; at < to.size() && single_copy_.succeeded != 0; at += kReadAtOnce) {
      REGROUP_RETURN_IF_ERROR(engine_->check());
      if (core::SystemClock().now() >= pending.deadline) {
        return core::deadline_exceeded(
            fmt::format("{}: the memory of rank {} was not read in time in "
                        "generation {}",
                        name_of(o.kind), r, engine_->generation()));
      }
      const Output piece = to.subspan(at, std::min(kReadAtOnce, to.size() - at));
      single_copy_.succeeded = cma_read(single_copy_.memory[r], from + at, piece) ? 1 : 0;
    }
  }
  return {};
}

// Behind the rendezvous at which all said whether they could.
void ShmCommunicator::collect_votes(Pending& pending) {
  for (std::size_t r = 0; r < slots_.size(); ++r) {
    std::uint64_t succeeded = 0;
    std::memcpy(&succeeded, sync_.payload_of(r), sizeof succeeded);
    single_copy_.possible = single_copy_.possible && succeeded != 0;
  }
  if (single_copy_.possible) {
    single_copy_.done += 1;
    return;
  }
  plan_.single_copy = false;
  plan_.first_chunk = 2;
  // One more than chunks need, for contributions in the arena, which the last work reads.
  pending.phases = plan_.first_chunk + (plan_.block + plan_.piece - 1) / plan_.piece + 2;
}

}  // namespace regroup::collective
