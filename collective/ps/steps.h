// Steps of mode sync, as words in the lanes of each shard. A step has a fixed number of leaves, the
// same for any number of clients. A shard gathers them, writes their sum to its log, and says so in
// `logged`. Once all shards have said so, nobody needs the step's leaves any more, and each applies
// its part: so no leaf that counts is computed from rows of two steps, whatever is killed.
// docs/design/ps_lanes.md.
//
// Shards of several stores cannot read each other's words. Clients read `logged` in all stores, and
// propose the least of them to each. It only grows, in memory that outlives clients and servers, so
// any client may do so at any time, and again. docs/design/ps_hosts.md.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace regroup::collective::ps {

inline constexpr std::uint32_t kMostLeaves = 1024;  // of a step

struct StepWords {
  // By the server. Shard 0 logs a step last, so its `logged` says that all shards have. Steps whose
  // sums are in the log of the shard's store; of these, steps that are applied. applied <= logged
  // <= applied + 1, and applied <= the least `logged` of all shards.
  alignas(128) std::atomic<std::uint64_t> logged;
  std::atomic<std::uint64_t> applied;
  std::atomic<std::uint64_t> leaves;  // of a step; 0: no leaf has come yet
  std::atomic<std::uint64_t>
      failed;  // step + 1 that the shard cannot log: `code` and `why` say why
  std::atomic<std::uint32_t> code;
  std::array<char, 256> why;
  // Leaves of step `logged` that are whole here, a bit each. They are in the memory of a server:
  // its successor clears the bits.
  std::array<std::atomic<std::uint64_t>, kMostLeaves / 64> have;
  // Of shard 0. Counts up with each change of any shard's words, before clients are woken.
  alignas(128) std::atomic<std::uint64_t> changes;
  // Of shard 0, by clients: leaves that one began while another client had them.
  std::atomic<std::uint64_t> taken_over;
  // Of shard 0, if the step is one of several stores: 1 then. By the server, when a step begins.
  std::atomic<std::uint64_t> of_several;
  // Of shard 0. Steps that all stores have logged, as clients have seen. A step is applied once its
  // server has agreed, which it does while nobody has `hold`.
  std::atomic<std::uint64_t> proposed;
  std::atomic<std::uint64_t> agreed;
  // Of shard 0, robust: while another process holds it, shard 0 logs no step, and agrees to none.
  alignas(64) pthread_mutex_t hold;
  // Of shard 0, by clients: who computes a leaf. It keeps clients from doing the same work twice,
  // no more: a leaf that two clients compute is the same.
  std::array<std::atomic<std::uint64_t>, kMostLeaves> claims;
};

// Whether a shard needs leaf `leaf` of step `step` no more, now.
[[nodiscard]] inline bool has_leaf(const StepWords& words, std::uint64_t step, std::uint32_t leaf) {
  while (true) {
    const std::uint64_t logged = words.logged.load(std::memory_order_seq_cst);
    if (logged != step) return logged > step;
    const std::uint64_t bits = words.have[leaf / 64].load(std::memory_order_seq_cst);
    // The bits are cleared after `logged` has grown.
    if (words.logged.load(std::memory_order_seq_cst) == step) return (bits >> leaf % 64 & 1) != 0;
  }
}
// Steps that may be applied, of which `first`, the words of shard 0, knows: each shard looks at all
// `logged` words, too.
[[nodiscard]] inline std::uint64_t agreed_steps(const StepWords& first) {
  const std::uint64_t logged = first.logged.load(std::memory_order_seq_cst);
  if (first.of_several.load(std::memory_order_seq_cst) == 0) return logged;
  return std::min(logged, first.agreed.load(std::memory_order_seq_cst));
}
inline void set_leaf(StepWords& words, std::uint32_t leaf) {
  words.have[leaf / 64].fetch_or(std::uint64_t{1} << leaf % 64, std::memory_order_seq_cst);
}
inline void clear_leaves(StepWords& words) {
  for (auto& bits : words.have) bits.store(0, std::memory_order_seq_cst);
}

// Leaves of a step, a bit each.
struct LeafSet {
  std::array<std::uint64_t, kMostLeaves / 64> bits{};
  [[nodiscard]] bool has(std::uint32_t leaf) const {
    return (bits[leaf / 64] >> leaf % 64 & 1) != 0;
  }
  void insert(std::uint32_t leaf) { bits[leaf / 64] |= std::uint64_t{1} << leaf % 64; }
  void insert(const LeafSet& others) {
    for (std::size_t i = 0; i < bits.size(); ++i) bits[i] |= others.bits[i];
  }
  [[nodiscard]] bool empty() const { return *this == LeafSet{}; }
  bool operator==(const LeafSet&) const = default;
};

// A step as one store has it, for a client of several.
struct StepState {
  std::uint64_t logged = 0;    // steps that all shards of the store have logged
  std::uint64_t applied = 0;   // steps that all shards have applied
  std::uint64_t proposed = 0;  // as StepWords::proposed
  std::uint64_t leaves = 0;    // of the newest step that is logged or begun; 0: not known
  std::uint64_t changes = 0;   // as StepWords::changes, read before the rest
  LeafSet lacking;             // of the step that was asked for: what a shard needs
};

// A word of `claims`. The claim of a client that has ended is cleared with its lane.
struct LeafClaim {
  std::uint64_t step = 0;
  std::uint32_t lane = 0;
  bool operator==(const LeafClaim&) const = default;
  // 0 is no claim.
  [[nodiscard]] std::uint64_t word() const { return step << 16 | (lane + 1); }
  [[nodiscard]] static LeafClaim of(std::uint64_t word) {
    return {word >> 16, static_cast<std::uint32_t>(word & 0xffff) - 1};
  }
};

}  // namespace regroup::collective::ps
