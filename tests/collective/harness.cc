// The harness of the collective tests.
#include "tests/collective/harness.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <thread>

#include "core/canonical.h"

namespace regroup::collective::testing {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::seconds kPatience{60};

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

template <class T>
T element(std::mt19937_64& random) {
  const std::uint64_t bits = random();
  if constexpr (std::is_integral_v<T>) return static_cast<T>(bits);
  const auto mantissa = static_cast<T>(static_cast<std::int64_t>(bits)) / static_cast<T>(1ULL << 63);
  return std::ldexp(mantissa, static_cast<int>(bits % 40) - 20);
}

template <class T>
std::vector<std::byte> leaf_of(std::size_t elements, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<T> values(elements);
  for (T& value : values) value = element<T>(random);
  return bytes_of(values);
}

template <class T>
T sum_at(std::span<const std::vector<std::byte>> leaves, core::Interval node, std::size_t index) {
  if (node.size() == 1) {
    T value;
    std::memcpy(&value, leaves[node.begin].data() + index * sizeof(T), sizeof(T));
    return value;
  }
  const std::uint32_t middle = core::canonical_split(node);
  return sum_at<T>(leaves, {node.begin, middle}, index) + sum_at<T>(leaves, {middle, node.end}, index);
}

template <class T>
std::vector<std::byte> sum_of(std::span<const std::vector<std::byte>> leaves, core::Interval node) {
  std::vector<T> values(leaves[node.begin].size() / sizeof(T));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = sum_at<T>(leaves, node, i);
  return bytes_of(values);
}

void cover(core::Interval node, std::mt19937_64& random, std::vector<core::Interval>* out) {
  if (node.size() == 1 || random() % 4 == 0) {
    out->push_back(node);
    return;
  }
  const std::uint32_t middle = core::canonical_split(node);
  cover({node.begin, middle}, random, out);
  cover({middle, node.end}, random, out);
}

[[noreturn]] void run_child(const core::Arena& parent, int rank,
                            const std::function<void(const core::Arena&, int)>& body) {
  {
    auto arena = core::Arena::open(core::Fd(::dup(parent.memfd())));
    EXPECT_TRUE(arena.ok()) << arena.status().to_string();
    if (arena.ok()) body(*arena, rank);
  }
  std::fflush(nullptr);
  ::_exit(::testing::Test::HasFailure() ? 1 : 0);
}

void run_processes(const core::Arena& arena, int count,
                   const std::function<void(const core::Arena&, int)>& body,
                   const std::function<void()>& meanwhile, int may_die) {
  std::fflush(nullptr);
  std::vector<pid_t> children;
  for (int rank = 0; rank < count; ++rank) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) run_child(arena, rank, body);
    children.push_back(child);
  }
  meanwhile();
  for (int rank = 0; rank < count; ++rank) {
    int status = 0;
    EXPECT_EQ(::waitpid(children[static_cast<std::size_t>(rank)], &status, 0),
              children[static_cast<std::size_t>(rank)]);
    EXPECT_TRUE(rank == may_die || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) << "rank " << rank;
  }
}

}  // namespace

core::Arena make_arena(const ArenaShape& shape) {
  auto arena = core::Arena::create({.slots = shape.slots,
                                    .shards = shape.shards,
                                    .buffers_per_slot = shape.buffers,
                                    .element_bytes = 4,
                                    .elements = shape.elements});
  EXPECT_TRUE(arena.ok()) << arena.status().to_string();
  for (std::uint32_t slot = 0; slot < shape.slots; ++slot) {
    arena->assign_line(static_cast<core::SlotIndex>(slot), slot);
  }
  return std::move(arena).value();
}

core::World make_world(core::Generation g, std::uint32_t size) {
  core::World world;
  world.generation = g;
  for (std::uint32_t i = 0; i < size; ++i) {
    world.members.push_back({.id = i, .seat = {0, static_cast<core::SlotIndex>(i)}});
  }
  return world;
}

void revoke_all(const core::Arena& arena, core::Generation g) {
  for (std::uint32_t slot = 0; slot < arena.spec().slots; ++slot) {
    core::Line& line = arena.line(static_cast<core::SlotIndex>(slot));
    core::revoke<core::RealPolicy>(line.state, line.revoked_up_to, g);
  }
  core::ring_all(arena);
}

void leave_all(const core::Arena& arena, core::Generation g) {
  for (std::uint32_t slot = 0; slot < arena.spec().slots; ++slot) {
    arena.line(static_cast<core::SlotIndex>(slot)).left.store(g, std::memory_order_release);
  }
  core::ring_all(arena);
}

core::TimePoint soon() { return core::SystemClock().now() + kPatience; }

bool eventually(const std::function<bool()>& ready) {
  for (const core::TimePoint deadline = soon(); !ready(); ::sched_yield()) {
    if (core::SystemClock().now() > deadline) return false;
  }
  return true;
}

void run_ranks(const core::Arena& arena, Ranks kind, int count,
               const std::function<void(const core::Arena&, int)>& body,
               const std::function<void()>& meanwhile, int may_die) {
  if (kind == Ranks::kProcesses) return run_processes(arena, count, body, meanwhile, may_die);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < count; ++rank) threads.emplace_back([&, rank] { body(arena, rank); });
  meanwhile();
}

std::vector<std::byte> make_leaf(Dtype dtype, std::size_t elements, std::uint64_t seed) {
  switch (dtype) {
    case Dtype::kFloat32:
      return leaf_of<float>(elements, seed);
    case Dtype::kFloat64:
      return leaf_of<double>(elements, seed);
    case Dtype::kInt32:
      return leaf_of<std::uint32_t>(elements, seed);
    case Dtype::kInt64:
      return leaf_of<std::uint64_t>(elements, seed);
  }
  return {};
}

std::vector<std::byte> reference_sum(Dtype dtype, std::span<const std::vector<std::byte>> leaves,
                                     core::Interval interval) {
  switch (dtype) {
    case Dtype::kFloat32:
      return sum_of<float>(leaves, interval);
    case Dtype::kFloat64:
      return sum_of<double>(leaves, interval);
    case Dtype::kInt32:
      return sum_of<std::uint32_t>(leaves, interval);
    case Dtype::kInt64:
      return sum_of<std::uint64_t>(leaves, interval);
  }
  return {};
}

std::vector<core::Interval> random_cover(std::uint32_t leaves, std::mt19937_64& random) {
  std::vector<core::Interval> nodes;
  cover({0, leaves}, random, &nodes);
  std::ranges::shuffle(nodes, random);
  return nodes;
}

void dawdle(std::mt19937_64& random) {
  const std::uint64_t dice = random() % 16;
  const auto time = dice == 0 ? 200us : dice < 4 ? 20us : 0us;
  for (const auto end = core::SystemClock().now() + time; core::SystemClock().now() < end;) ::sched_yield();
}

}  // namespace regroup::collective::testing
