// Runs the ranks of a World over one arena, as threads or as processes, and acts as their agent: it
// revokes generations and rings bells.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "proto/world.h"
#include "regroup/communicator.h"
#include "shmem/arena.h"
#include "tests/collective/reference.h"

namespace regroup::collective::testing {

enum class Ranks { kThreads, kProcesses };

struct ArenaShape {
  std::uint32_t slots = 1;
  std::uint32_t shards = 1;
  std::uint32_t buffers = 2;
  std::uint64_t elements = 1024;  // of 4 bytes
};

// Makes an arena with a member in every slot; no member has been in a generation.
[[nodiscard]] shmem::Arena make_arena(const ArenaShape& shape);
// Makes the World of generation `g`, with rank r in slot r of node 0.
[[nodiscard]] proto::World make_world(proto::Generation g, std::uint32_t size);

// Acts as the agent: revokes generation `g` for all slots and rings their bells.
void revoke_all(const shmem::Arena& arena, proto::Generation g);
// Acts as the members: all leave `g`. Rings all bells.
void leave_all(const shmem::Arena& arena, proto::Generation g);

// The number of rendezvous at which the owner of `channel` has arrived in its current instance.
[[nodiscard]] std::uint64_t arrivals_in(const shmem::Channel& channel);

// REGROUP_TEST_SCALE, or 1 if it is not set. With N each test runs 1/N of its rounds and
// combinations and has N times as long: an emulated processor is about thirty times slower
// (tools/dev/arm64.sh).
[[nodiscard]] std::uint64_t test_scale();
[[nodiscard]] std::uint64_t rounds(std::uint64_t all);     // at least one
[[nodiscard]] bool is_sampled(std::uint64_t combination);  // all ranks must use the same numbers
template <class List>
[[nodiscard]] auto sampled(const List& all) {
  std::vector<std::remove_cvref_t<decltype(*std::begin(all))>> some;
  for (std::size_t i = 0; i < std::size(all); ++i) {
    if (is_sampled(i)) some.push_back(all[i]);
  }
  return some;
}

// A deadline that only a hang reaches.
[[nodiscard]] base::TimePoint soon();
// Waits until `ready()`; false if that takes longer than soon().
[[nodiscard]] bool eventually(const std::function<bool()>& ready);

// The cores that this thread may run on; binds it to one.
[[nodiscard]] std::vector<int> own_cores();
void bind_to(int core);

// Starts a process that calls `body(rank)` and exits with 1 if an expectation has failed in it. The
// caller must wait for the process.
[[nodiscard]] pid_t fork_rank(int rank, const std::function<void(int)>& body);
// Calls `body(rank)` for the ranks 0..count-1 at once, each in a thread or a process, and
// `meanwhile()` in the calling thread; returns when all are done. A failed expectation in a process
// fails the test, as does its death by a signal unless it is `may_die`.
void run_all(
    Ranks kind, int count, const std::function<void(int)>& body,
    const std::function<void()>& meanwhile = [] {}, int may_die = -1);
// Like run_all(), but calls `body(arena, rank)`. Threads share `arena`; each process maps its
// memfd.
void run_ranks(
    const shmem::Arena& arena, Ranks kind, int count,
    const std::function<void(const shmem::Arena&, int)>& body,
    const std::function<void()>& meanwhile = [] {}, int may_die = -1);

// A random set of canonical nodes that covers 0..leaves-1, in random order.
[[nodiscard]] std::vector<proto::Interval> random_cover(std::uint32_t leaves,
                                                        std::mt19937_64& random);
// Spins for a random time, sometimes long enough for other ranks to overtake.
void dawdle(std::mt19937_64& random);

}  // namespace regroup::collective::testing
