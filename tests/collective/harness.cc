// The harness of the collective tests.
#include "tests/collective/harness.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/clock.h"
#include "proto/canonical.h"

namespace regroup::collective::testing {
namespace {

using namespace std::chrono_literals;

// How much longer a sanitizer may take, as in regroup_test_timeout() (cmake/Regroup.cmake).
#if defined(__SANITIZE_THREAD__)
constexpr int kSanitizerFactor = 5;
#elif defined(__SANITIZE_ADDRESS__)
constexpr int kSanitizerFactor = 2;
#else
constexpr int kSanitizerFactor = 1;
#endif
constexpr std::chrono::seconds kTimeout{60 * kSanitizerFactor};

void cover(proto::Interval node, std::mt19937_64& random, std::vector<proto::Interval>* out) {
  if (node.size() == 1 || random() % 4 == 0) {
    out->push_back(node);
    return;
  }
  const std::uint32_t middle = proto::canonical_split(node);
  cover({node.begin, middle}, random, out);
  cover({middle, node.end}, random, out);
}

void run_processes(int count, const std::function<void(int)>& body,
                   const std::function<void()>& meanwhile, int may_die) {
  std::fflush(nullptr);
  std::vector<pid_t> children;
  for (int rank = 0; rank < count; ++rank) {
    children.push_back(fork_rank(rank, body));
    ASSERT_GE(children.back(), 0);
  }
  meanwhile();
  for (int rank = 0; rank < count; ++rank) {
    int status = 0;
    EXPECT_EQ(::waitpid(children[static_cast<std::size_t>(rank)], &status, 0),
              children[static_cast<std::size_t>(rank)]);
    EXPECT_TRUE(rank == may_die || (WIFEXITED(status) && WEXITSTATUS(status) == 0))
        << "rank " << rank << " ended with status " << status;
  }
}

}  // namespace

shmem::Arena make_arena(const ArenaShape& shape) {
  auto arena = shmem::Arena::create({.slots = shape.slots,
                                     .shards = shape.shards,
                                     .buffers_per_slot = shape.buffers,
                                     .element_bytes = 4,
                                     .elements = shape.elements});
  EXPECT_TRUE(arena.ok()) << arena.status().to_string();
  for (std::uint32_t slot = 0; slot < shape.slots; ++slot) {
    arena->assign_slot(static_cast<proto::SlotIndex>(slot), slot);
  }
  return std::move(arena).value();
}

proto::World make_world(proto::Generation g, std::uint32_t size) {
  proto::World world;
  world.generation = g;
  for (std::uint32_t i = 0; i < size; ++i) {
    world.members.push_back({.id = i, .slot_id = {0, static_cast<proto::SlotIndex>(i)}});
  }
  return world;
}

void revoke_all(const shmem::Arena& arena, proto::Generation g) {
  for (std::uint32_t slot = 0; slot < arena.spec().slots; ++slot) {
    shmem::MemberSlot& member_slot = arena.member_slot(static_cast<proto::SlotIndex>(slot));
    shmem::revoke<shmem::RealPolicy>(member_slot.state, member_slot.revoked_up_to, g);
  }
  shmem::ring_all(arena);
}

void leave_all(const shmem::Arena& arena, proto::Generation g) {
  for (std::uint32_t slot = 0; slot < arena.spec().slots; ++slot) {
    arena.member_slot(static_cast<proto::SlotIndex>(slot))
        .left_generation.store(g, std::memory_order_release);
  }
  shmem::ring_all(arena);
}

std::uint64_t arrivals_in(const shmem::Channel& channel) {
  return std::max(channel.arrivals[0].word.load() >> 32, channel.arrivals[1].word.load() >> 32);
}

std::uint64_t test_scale() {
  static const std::uint64_t kScale = [] {
    const char* const text = std::getenv("REGROUP_TEST_SCALE");
    return std::max<std::uint64_t>(1, text == nullptr ? 1 : std::strtoull(text, nullptr, 10));
  }();
  return kScale;
}

std::uint64_t rounds(std::uint64_t all) { return std::max<std::uint64_t>(1, all / test_scale()); }

bool is_sampled(std::uint64_t combination) { return combination % test_scale() == 0; }

base::TimePoint soon() { return base::SystemClock().now() + test_scale() * kTimeout; }

bool eventually(const std::function<bool()>& ready) {
  // Between busy processes each turn is long awaited, and a mesh looks at its listener at every
  // 16th call only.
  constexpr int kCallsInATurn = 16;
  for (const base::TimePoint deadline = soon();; ::sched_yield()) {
    for (int i = 0; i < kCallsInATurn; ++i) {
      if (ready()) return true;
    }
    if (base::SystemClock().now() > deadline) return false;
  }
}

std::vector<int> own_cores() {
  cpu_set_t mask;
  std::vector<int> cores;
  EXPECT_EQ(::sched_getaffinity(0, sizeof mask, &mask), 0);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &mask)) cores.push_back(core);
  }
  return cores;
}

void bind_to(int core) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  CPU_SET(core, &mask);
  EXPECT_EQ(::sched_setaffinity(0, sizeof mask, &mask), 0);
}

pid_t fork_rank(int rank, const std::function<void(int)>& body) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);  // Yama would let a rank read its own children only
  body(rank);
  std::fflush(nullptr);
  ::_exit(::testing::Test::HasFailure() ? 1 : 0);
}

void run_all(Ranks kind, int count, const std::function<void(int)>& body,
             const std::function<void()>& meanwhile, int may_die) {
  if (kind == Ranks::kProcesses) return run_processes(count, body, meanwhile, may_die);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < count; ++rank) threads.emplace_back([&, rank] { body(rank); });
  meanwhile();
}

void run_ranks(const shmem::Arena& arena, Ranks kind, int count,
               const std::function<void(const shmem::Arena&, int)>& body,
               const std::function<void()>& meanwhile, int may_die) {
  const auto one = [&](int rank) {
    if (kind == Ranks::kThreads) return body(arena, rank);
    auto mine = shmem::Arena::open(base::Fd(::dup(arena.memfd())));
    EXPECT_TRUE(mine.ok()) << mine.status().to_string();
    if (mine.ok()) body(*mine, rank);
  };
  run_all(kind, count, one, meanwhile, may_die);
}

std::vector<proto::Interval> random_cover(std::uint32_t leaves, std::mt19937_64& random) {
  std::vector<proto::Interval> nodes;
  cover({0, leaves}, random, &nodes);
  std::ranges::shuffle(nodes, random);
  return nodes;
}

void dawdle(std::mt19937_64& random) {
  const std::uint64_t dice = random() % 16;
  const auto time = dice == 0 ? 200us : dice < 4 ? 20us : 0us;
  for (const auto end = base::SystemClock().now() + time; base::SystemClock().now() < end;)
    ::sched_yield();
}

}  // namespace regroup::collective::testing
