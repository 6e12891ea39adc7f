// A training program in mode sync: tables, and what each leaf pushes. Its result depends on the
// number of steps alone.
#pragma once

#include <atomic>
#include <numeric>
#include <random>
#include <vector>

#include "base/crc32c.h"
#include "tests/collective/ps/served.h"

namespace regroup::collective::ps::testing::training {

inline constexpr std::int64_t kLeaves = 6;
constexpr Consistency sync_of(std::int64_t leaves) {
  return {.mode = Mode::kSync, .leaves = leaves};
}

inline TableSpec rows() {
  return {.name = "rows",
          .kind = TableKind::kHash,
          .dim = 3,
          .init = {InitialKind::kUniform, -1, 1},
          .optimizer = {.kind = OptimizerKind::kRowAdagrad}};
}
inline TableSpec top() {
  return {.name = "top",
          .rows = 1000,
          .init = {InitialKind::kNormal, 0, 1},
          .optimizer = {.kind = OptimizerKind::kAdam}};
}
inline TableSpec counts() {
  return {.name = "counts", .kind = TableKind::kDirect, .rows = 100, .dtype = Dtype::kInt64};
}

inline std::vector<std::int64_t> all_ids(std::int64_t count) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(count));
  std::iota(out.begin(), out.end(), 0);
  return out;
}
struct Tables {
  Table rows, top, counts;
};
inline Tables open_all(Client& client) {
  return {open(client, rows()), open(client, top()), open(client, counts())};
}

// What a training script does with a leaf: it depends on the leaf, and on what it pulls.
inline base::Status train(Client& client, const Tables& tables, const Leaf& leaf) {
  std::mt19937 random(static_cast<unsigned>(leaf.step * 1000 + leaf.number));
  std::vector<std::int64_t> ids;
  for (std::int64_t id = 0; id < 60; ++id) {
    if (random() % 3 == 0) ids.push_back(id * 1'000'003);
  }
  std::vector<float> gradients = pull<float>(client, tables.rows, ids, 3);
  for (float& one : gradients) one = one * 0.3F + static_cast<float>(random() % 1000) / 997;
  REGROUP_RETURN_IF_ERROR(client.push(tables.rows, ids, bytes_of(gradients), {.lr = 0.1}).status());
  const std::vector<std::int64_t> count{leaf.number, 99}, ones{1, 1};
  REGROUP_RETURN_IF_ERROR(client.push(tables.counts, count, bytes_of(ones)).status());
  if (leaf.number % 4 == 3) return {};  // no gradient for the dense table
  std::vector<float> dense = pull<float>(client, tables.top);
  for (float& one : dense) one = one * 0.1F + static_cast<float>(random() % 1000) / 991;
  return client.push(tables.top, bytes_of(dense), {.lr = 0.01}).status();
}

// A CRC of all that the tables have.
inline std::uint32_t digest(Client& client, const Tables& tables) {
  std::vector<std::int64_t> ids;
  for (std::int64_t id = 0; id < 60; ++id) ids.push_back(id * 1'000'003);
  const std::vector<float> first = pull<float>(client, tables.rows, ids, 3);
  const std::vector<float> second = pull<float>(client, tables.top);
  std::vector<std::byte> all;
  for (const auto bytes : {bytes_of(first), bytes_of(second)})
    all.insert(all.end(), bytes.begin(), bytes.end());
  return base::crc32c(all);
}

// Trains until `steps` are complete; counts leaves.
inline base::Status train_until(Client& client, std::uint64_t steps,
                                std::atomic<std::uint64_t>& leaves) {
  const Tables tables = open_all(client);
  while (client.clock() < steps) {
    auto leaf = client.next_leaf();
    for (; leaf.ok() && *leaf; leaf = client.next_leaf()) {
      REGROUP_RETURN_IF_ERROR(train(client, tables, **leaf));
      ++leaves;
    }
    REGROUP_RETURN_IF_ERROR(leaf.status());
  }
  return {};
}
// The digest of the tables after so many steps; checks that each leaf counted once.
inline std::uint32_t checked_digest(Client& client, std::uint64_t steps) {
  EXPECT_EQ(client.clock(), steps);
  const Tables tables = open_all(client);
  const auto counted = pull<std::int64_t>(client, tables.counts, all_ids(100), 1);
  std::vector<std::int64_t> expected(100);
  std::fill_n(expected.begin(), kLeaves, static_cast<std::int64_t>(steps));
  expected[99] = static_cast<std::int64_t>(steps) * kLeaves;
  EXPECT_EQ(counted, expected);
  return digest(client, tables);
}

}  // namespace regroup::collective::ps::testing::training
