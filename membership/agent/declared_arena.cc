// Computes the shape of the arena from the first declaration. membership/declaration.h compares
// later declarations with it.
#include "membership/agent/declared_arena.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/memory_limit.h"
#include "membership/declaration.h"
#include "proto/canonical.h"
#include "proto/failure.h"

namespace regroup::membership {
namespace {

// The ring gets at most this fraction (1/n) of the free memory, since members have yet to allocate
// theirs.
constexpr std::uint64_t kShareForResults = 8;

shmem::ArenaSpec with_kept_results(shmem::ArenaSpec spec, std::uint64_t state,
                                   const AgentOptions& options) {
  if (options.kept_results == 0 || state < options.learn_above) return spec;
  const auto limit = base::memory_limit();
  if (!limit.ok()) return spec;
  const std::uint64_t left =
      limit->available - std::min(limit->available, shmem::arena_bytes(spec));
  const std::uint64_t room =
      left / kShareForResults / std::max<std::uint64_t>(1, spec.result_bytes());
  spec.kept_results =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(options.kept_results, room));
  return spec;
}

// The size of the save area: the state, and the JSON description that regroup::elastic appends.
constexpr std::uint64_t kRoomForNames = 8 << 20;
std::uint64_t save_bytes(std::uint64_t state) { return state + state / 16 + kRoomForNames; }

base::Result<shmem::Arena> create_arena(const proto::Join& join, const AgentOptions& options) {
  const shmem::ArenaSpec spec{.slots = options.slots,
                              .shards = options.shards,
                              .buffers_per_slot = proto::canonical_buffers(options.shards),
                              .element_bytes = join.element_bytes,
                              .elements = join.elements,
                              .snapshot_bytes = join.state_bytes,
                              .node = options.node,
                              .kept_results = 0,
                              .save_bytes = options.checkpoints ? save_bytes(join.state_bytes) : 0};
  if (options.checkpoint_memory > 0 && spec.save_bytes > options.checkpoint_memory) {
    return base::invalid_argument(
        fmt::format("--checkpoint-memory {}: a copy of this state takes {} bytes",
                    options.checkpoint_memory, spec.save_bytes));
  }
  auto arena = shmem::Arena::create(with_kept_results(spec, join.state_bytes, options));
  if (arena.code() == base::Code::kResourceExhausted) arena = shmem::Arena::create(spec);
  return arena;
}

}  // namespace

std::variant<DeclaredArena::Admitted, DeclaredArena::Refused> DeclaredArena::admit(
    const proto::Join& join, const AgentOptions& options) {
  Admitted admitted;
  const base::Status resumed =
      check_resumed(join, options.resumed_fingerprint, options.any_fingerprint, &admitted.warning);
  if (!resumed.ok()) return Refused{resumed.message(), proto::kRefusedKind};
  if (declaration_) {
    const base::Status same =
        check_declaration(join, *declaration_, options.any_fingerprint, &admitted.warning);
    if (!same.ok()) return Refused{same.message(), refusal_kind(join, *declaration_)};
    return admitted;
  }
  auto arena = create_arena(join, options);
  if (!arena.ok()) return Refused{arena.status().message(), proto::kRefusedKind};
  arena_ = std::move(*arena);
  declaration_ = join;
  return admitted;
}

}  // namespace regroup::membership
