// Specs, keys and pushes that are refused, with the whole message; the cut into ranges.
#include "collective/ps/table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>

namespace regroup::collective::ps {
namespace {

TableSpec users() { return {.name = "users", .kind = TableKind::kHash, .dim = 64}; }
TableSpec tags() { return {.name = "tags", .kind = TableKind::kDirect, .rows = 10'000, .dim = 16}; }
TableSpec top() { return {.name = "top/weight", .kind = TableKind::kDense, .rows = 1000}; }

std::string refusal(const base::Status& status) {
  EXPECT_EQ(status.code(), base::Code::kInvalidArgument) << status.to_string();
  return status.message();
}

TEST(PsTable, GoodSpecsPass) {
  for (TableSpec spec : {users(), tags(), top()}) {
    for (const Dtype dtype : {Dtype::kFloat32, Dtype::kFloat64, Dtype::kInt32, Dtype::kInt64,
                              Dtype::kFloat16, Dtype::kBfloat16}) {
      spec.dtype = dtype;
      EXPECT_TRUE(check(spec).ok()) << check(spec).to_string();
    }
  }
}

TEST(PsTable, BadSpecsAreRefused) {
  struct {
    std::function<void(TableSpec&)> change;
    const char* message;
  } const rows[] = {
      {[](TableSpec& s) { s.name = "a b"; },
       "table name: expected 1 to 200 of the characters A-Z a-z 0-9 _ . / -, got \"a b\" (3 "
       "bytes)"},
      {[](TableSpec& s) { s.dim = 0; }, "table users: expected dim from 1 to 4096, got 0"},
      {[](TableSpec& s) { s.rows = 3; },
       "table users: a hash table has any number of rows: expected rows 0, got 3"},
      {[](TableSpec& s) { s.kind = TableKind::kDirect; },
       "table users: expected rows from 1 to 281474976710656, got 0"},
      {[](TableSpec& s) { s.dtype = Dtype::kUint8; },
       "table users: expected float32, float64, float16, bfloat16, int32 or int64, got uint8"},
      {[](TableSpec& s) {
         s.dtype = Dtype::kInt64;
         s.optimizer.kind = OptimizerKind::kSgd;
       },
       "table users: optimizer sgd computes in float32; expected sum or assign for int64"},
      {[](TableSpec& s) { s.optimizer.kind = OptimizerKind::kAdam; },
       "table users: adam would move rows that get no gradient; use lazy_adam"},
      {[](TableSpec& s) { s.optimizer.kind = OptimizerKind::kMomentum; },
       "table users: momentum would move rows that get no gradient; use sgd"},
      {[](TableSpec& s) { s.optimizer = {.kind = OptimizerKind::kLazyAdam, .beta2 = 1}; },
       "table users: lazy_adam beta2: expected beta2 from 0 to 0.999999999, got 1"},
      {[](TableSpec& s) {
         s.init = {InitialKind::kUniform, 1, -1};
       },
       "table users: initializer uniform: expected finite numbers of float32, lowest <= highest, "
       "standard deviation >= 0, got 1 and -1"},
      {[](TableSpec& s) {
         s.dtype = Dtype::kInt32;
         s.optimizer = {};
         s.init = {InitialKind::kConstant, 3e9, 0};
       },
       "table users: initializer constant: expected finite numbers of int32, lowest <= highest, "
       "standard deviation >= 0, got 3000000000 and 0"},
      {[](TableSpec& s) {
         s.dtype = Dtype::kFloat64;
         s.init = {InitialKind::kUniform, -1.7e308, 1.7e308};
       },
       "table users: initializer uniform: expected finite numbers of float64, lowest <= highest, "
       "standard deviation >= 0, got -1.7e+308 and 1.7e+308"},
  };
  for (const auto& row : rows) {
    TableSpec spec = users();
    row.change(spec);
    EXPECT_EQ(refusal(check(spec)), row.message);
  }
  TableSpec dense = top();
  dense.optimizer.kind = OptimizerKind::kRowAdagrad;
  EXPECT_EQ(refusal(check(dense)),
            "table top/weight: row_adagrad is for tables with rows; use adagrad");
  dense = top();
  dense.evict_after = 4;
  EXPECT_EQ(refusal(check(dense)),
            "table top/weight: a dense table forgets no rows: expected evict_after 0, got 4");
  dense = top();
  dense.rows = 1ULL << 32;
  EXPECT_EQ(check(dense).to_string(), "ok") << "4096 ranges";
  EXPECT_EQ(ranges_of(dense, 1).size(), kMaxRanges);
  dense.rows = 1ULL << 33;
  EXPECT_EQ(refusal(check(dense)),
            "table top/weight: 8589934592 elements of float32 are more than 4096 ranges of 4194304 "
            "bytes; cut the tensor into several tables");
}

TEST(PsTable, AnotherSpecOfTheSameTableIsRefused) {
  struct {
    std::function<void(TableSpec&)> change;
    const char* message;
  } const rows[] = {
      {[](TableSpec& s) { s.dim = 32; }, "table users: expected dim 64 as worker 1 has it, got 32"},
      {[](TableSpec& s) { s.kind = TableKind::kDirect; },
       "table users: expected kind hash as worker 1 has it, got direct"},
      {[](TableSpec& s) { s.dtype = Dtype::kFloat16; },
       "table users: expected dtype float32 as worker 1 has it, got float16"},
      {[](TableSpec& s) { s.optimizer.kind = OptimizerKind::kSgd; },
       "table users: expected optimizer sum as worker 1 has it, got sgd"},
      {[](TableSpec& s) { s.evict_after = 9; },
       "table users: expected evict_after 0 as worker 1 has it, got 9"},
      {[](TableSpec& s) {
         s.init = {InitialKind::kNormal, 0, 1};
       },
       "table users: expected initializer zeros(0, 0) as worker 1 has it, got normal(0, 1)"},
      {[](TableSpec& s) {
         s.part = {1, 3, 6};
       },
       "table users: expected part 0 of 1 as worker 1 has it, got 1 of 3"},
  };
  EXPECT_TRUE(check_same(users(), users(), "worker 1").ok());
  for (const auto& row : rows) {
    TableSpec spec = users();
    row.change(spec);
    EXPECT_EQ(refusal(check_same(spec, users(), "worker 1")), row.message);
  }
}

TEST(PsTable, BadKeysAreRefused) {
  const std::int64_t high[] = {1, 2, 3, 10'007};
  EXPECT_EQ(refusal(check_keys(tags(), high)),
            "table tags: expected ids from 0 to 9999, got 10007 (position 3 of the batch)");
  const std::int64_t negative[] = {-1};
  EXPECT_EQ(refusal(check_keys(tags(), negative)),
            "table tags: expected ids from 0 to 9999, got -1 (position 0 of the batch)");
  EXPECT_TRUE(check_keys(users(), negative).ok());
  const std::int64_t twice[] = {4, 17, 5, 17};
  EXPECT_EQ(refusal(check_keys(users(), twice)),
            "table users: key 17 occurs twice (positions 1 and 3 of the batch); add up the "
            "gradients of a key first");
}

TEST(PsTable, BadPushesAreRefused) {
  EXPECT_EQ(refusal(check_push(users(), 512, 511, Dtype::kFloat32, {})),
            "push to table users: expected 512 rows for 512 keys, got 511");
  EXPECT_EQ(refusal(check_push(users(), 1, 1, Dtype::kFloat64, {})),
            "push to table users: expected gradients of float32, got float64");
  TableSpec half = users();
  half.dtype = Dtype::kBfloat16;
  EXPECT_TRUE(check_push(half, 1, 1, Dtype::kFloat32, {}).ok());
  TableSpec ftrl = users();
  ftrl.optimizer.kind = OptimizerKind::kFtrl;
  EXPECT_EQ(refusal(check_push(ftrl, 1, 1, Dtype::kFloat32, {.lr = -1})),
            "push to table users: expected lr >= 0, got -1");
  EXPECT_EQ(refusal(check_push(ftrl, 1, 1, Dtype::kFloat32, {})),
            "push to table users: ftrl divides by lr: expected lr > 0, got 0");
  for (const double lr : {1e300, 1e-50}) {
    EXPECT_EQ(check_push(ftrl, 1, 1, Dtype::kFloat32, {.lr = lr}).code(),
              base::Code::kInvalidArgument)
        << "a float has no such lr";
  }
  EXPECT_EQ(refusal(check_scalars({.lr = 0.2}, {.lr = 0.1})),
            "push: expected lr 0.1 as another leaf of the step has it, got 0.2");
}

TEST(PsTable, OptimizersHaveNames) {
  for (int kind = 0; kind <= static_cast<int>(OptimizerKind::kFtrl); ++kind) {
    const auto found = optimizer_of(name_of(static_cast<OptimizerKind>(kind)));
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(static_cast<int>(*found), kind);
  }
  EXPECT_EQ(refusal(optimizer_of("rmsprop").status()),
            "optimizer \"rmsprop\" is not known; expected sum, assign, sgd, momentum, adagrad, "
            "row_adagrad, adam, lazy_adam, ftrl");
  EXPECT_EQ(refusal(optimizer_of("adagard").status()),
            "optimizer \"adagard\" is not known; expected sum, assign, sgd, momentum, adagrad, "
            "row_adagrad, adam, lazy_adam, ftrl; did you mean adagrad?");
}

TEST(PsTable, RangesCoverEveryPositionOnce) {
  for (const std::uint64_t rows : {1ULL, 3ULL, 16ULL, 17ULL, 10'000ULL, 3ULL << 20}) {
    for (TableSpec spec : {tags(), top()}) {
      spec.rows = rows;
      for (const std::uint32_t servers : {1U, 5U, 9U}) {
        std::uint64_t next = 0;
        for (const PositionRange& range : ranges_of(spec, servers)) {
          EXPECT_EQ(range.first, next);
          EXPECT_LE(range.first, range.last);
          next = range.last + 1;
        }
        EXPECT_EQ(next, rows);
      }
    }
  }
  const auto hash = ranges_of(users(), 5);
  EXPECT_EQ(hash.size(), 32U);
  for (std::size_t i = 0; i < hash.size(); ++i)
    EXPECT_EQ(hash[i].first, i == 0 ? 0 : hash[i - 1].last + 1);
  EXPECT_EQ(hash.back().last, ~0ULL);
}

// Each range of a table is in one store, and stores have equally many, plus or minus one.
TEST(PsTable, PartsOfStoresAreTheWholeTable) {
  constexpr std::uint64_t kSlice = kDenseSliceBytes / sizeof(float);
  for (const std::uint64_t rows : {std::uint64_t{1}, std::uint64_t{3}, std::uint64_t{10'000},
                                   kSlice, 4 * kSlice, 9 * kSlice + 5}) {
    for (TableSpec spec : {users(), tags(), top()}) {
      if (spec.kind != TableKind::kHash) spec.rows = rows;
      for (const std::uint32_t stores : {2U, 3U, 5U}) {
        const std::vector<PositionRange> whole = ranges_of(spec, 2 * stores);
        std::vector<PositionRange> all;
        std::uint64_t elements = 0;
        for (std::uint32_t store = 0; store < stores; ++store) {
          spec.part = {.number = store, .of = stores, .shards = 2 * stores};
          ASSERT_TRUE(check(spec).ok());
          // Whatever the number of the store's own shards is.
          const std::vector<PositionRange> own = ranges_of(spec, store + 1);
          EXPECT_GE(own.size(), whole.size() / stores);
          EXPECT_LE(own.size(), whole.size() / stores + 1);
          all.insert(all.end(), own.begin(), own.end());
          if (spec.kind != TableKind::kDense) continue;
          std::uint64_t here = 0;
          for (const PositionRange& range : own) here += range.last - range.first + 1;
          EXPECT_EQ(dense_elements(spec), here) << rows << " elements, part " << store;
          elements += here;
        }
        std::ranges::sort(all, {}, &PositionRange::first);
        EXPECT_EQ(all, whole);
        EXPECT_EQ(elements, spec.kind == TableKind::kDense ? spec.rows : 0);
        spec.part = {};
        EXPECT_EQ(dense_elements(spec), spec.rows);
      }
    }
  }
}

// With replicas each range is in so many stores, which follow one another.
TEST(PsTable, ReplicasOfARangeAreInTheNextStores) {
  constexpr std::uint64_t kSlice = kDenseSliceBytes / sizeof(float);
  for (const std::uint64_t rows : {std::uint64_t{1}, kSlice, 4 * kSlice, 9 * kSlice + 5}) {
    for (TableSpec spec : {users(), tags(), top()}) {
      if (spec.kind != TableKind::kHash) spec.rows = rows;
      const std::vector<PositionRange> whole = ranges_of(spec, 8);
      for (const auto& [stores, replicas] :
           {std::pair(2U, 2U), std::pair(3U, 2U), std::pair(4U, 3U)}) {
        std::vector<std::vector<std::uint32_t>> found(whole.size());
        for (std::uint32_t store = 0; store < stores; ++store) {
          spec.part = {.number = store, .of = stores, .shards = 8, .replicas = replicas};
          ASSERT_TRUE(check(spec).ok());
          std::uint64_t elements = 0;
          for (const PositionRange& range : ranges_of(spec, 1)) {
            const auto at = std::ranges::find(whole, range);
            ASSERT_NE(at, whole.end());
            found[static_cast<std::size_t>(at - whole.begin())].push_back(store);
            elements += range.last - range.first + 1;
          }
          if (spec.kind == TableKind::kDense) {
            EXPECT_EQ(dense_elements(spec), elements) << rows << " elements, part " << store;
          }
        }
        for (std::size_t range = 0; range < whole.size(); ++range) {
          std::vector<std::uint32_t> expected;
          for (std::uint32_t i = 0; i < replicas; ++i)
            expected.push_back((store_of_range(spec.name, range, stores) + i) % stores);
          std::ranges::sort(expected);
          EXPECT_EQ(found[range], expected) << "range " << range;
        }
        spec.part = {};
      }
    }
  }
}

TEST(PsTable, TablesOfOneRangeAreSpreadOverStores) {
  std::array<int, 3> tables{};
  for (int i = 0; i < 300; ++i) ++tables.at(store_of_range("layer" + std::to_string(i), 0, 3));
  for (const int count : tables) EXPECT_GT(count, 60);
}

TEST(PsTable, PartsAreChecked) {
  for (const TablePart& part :
       {TablePart{3, 3, 3}, TablePart{0, 3, 2}, TablePart{0, 0, 1}, TablePart{0, 1, 1},
        TablePart{0, 2, 129}, TablePart{0, 65, 65}, TablePart{1, 1, 0}}) {
    TableSpec spec = users();
    spec.part = part;
    EXPECT_EQ(check(spec).code(), base::Code::kInvalidArgument) << part.number << " " << part.of;
  }
  TableSpec spec = users();
  spec.part = {.number = 2, .of = 3, .shards = 500};
  EXPECT_EQ(
      refusal(check(spec)),
      "table users: expected a part of 2 to 64 stores with 1 to 64 shards each, got part 2 of "
      "3 with 500 shards");
  spec.part = {.number = 2, .of = 3, .shards = 5, .replicas = 4};
  EXPECT_EQ(refusal(check(spec)), "table users: expected 1 to 3 replicas in 3 stores, got 4");
  TableSpec other = spec;
  other.part.replicas = 2;
  EXPECT_EQ(refusal(check_same(spec, other, "the server")),
            "table users: expected part 2 of 3 (replicas=2) as the server has it, got 2 of 3 "
            "(replicas=4)");
}

}  // namespace
}  // namespace regroup::collective::ps
