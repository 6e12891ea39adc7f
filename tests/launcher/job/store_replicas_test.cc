// Which stores of a parameter server may be lost.
#include "launcher/job/store_replicas.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace regroup::job {
namespace {

using Stores = std::vector<std::size_t>;

struct Row {
  std::size_t stores;
  std::size_t replicas;
  Stores lost;  // in this order
  Stores without_copy;
  Stores partners;  // of the last one that is lost
  std::size_t spare;
};

TEST(StoreReplicas, TheJobGoesOnWhileEachRangeHasACopy) {
  const Row rows[] = {
      {1, 1, {}, {}, {}, 0},
      {3, 1, {}, {}, {}, 0},
      {3, 1, {2}, {2}, {}, 0},
      {2, 2, {}, {}, {}, 1},          // store 0 has a copy of all
      {2, 2, {1}, {}, {0}, 0},        // none that may be lost is left
      {3, 2, {}, {}, {}, 1},          // {1, 2}
      {3, 2, {2}, {}, {0, 1}, 0},     //
      {3, 2, {1}, {}, {0, 2}, 0},     //
      {3, 2, {2, 1}, {1}, {0}, 0},    // those of store 1 were in 1 and 2
      {3, 3, {}, {}, {}, 2},          //
      {3, 3, {2}, {}, {0, 1}, 1},     //
      {3, 3, {1, 2}, {}, {0}, 0},     //
      {4, 2, {1, 3}, {}, {0, 2}, 0},  // not in turn
      {4, 2, {3, 2}, {2}, {1}, 0},    //
      {4, 2, {3}, {}, {0, 2}, 0},     // {1, 2} has two, {2, 3} one
      {5, 3, {}, {}, {}, 2},          //
      {5, 3, {4}, {}, {0, 1, 2, 3}, 1},
      {5, 3, {4, 2}, {}, {0, 1, 3}, 0},
      {5, 3, {4, 2, 3}, {2}, {0, 1}, 0},
      {6, 2, {4}, {}, {3, 5}, 0},
      {6, 3, {1, 1}, {}, {0, 2, 3, 5}, 1},  // told twice
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(testing::Message() << row.stores << " stores, " << row.replicas << " replicas, "
                                    << testing::PrintToString(row.lost) << " lost");
    StoreReplicas replicas(row.stores, row.replicas);
    for (const std::size_t store : row.lost) replicas.lose(store);
    EXPECT_EQ(replicas.without_copy(), row.without_copy);
    EXPECT_EQ(replicas.spare(), row.spare);
    if (!row.lost.empty()) {
      EXPECT_EQ(replicas.partners(row.lost.back()), row.partners);
    }
  }
}

// spare() against a search of all further losses.
TEST(StoreReplicas, SpareIsTheMostThatMayBeLostWhicheverTheyAre) {
  for (std::size_t stores = 1; stores <= 6; ++stores) {
    for (std::size_t replicas = 1; replicas <= stores; ++replicas) {
      for (std::size_t lost = 0; lost < std::size_t{1} << (stores - 1); ++lost) {
        const auto with = [&](std::size_t more) {
          StoreReplicas out(stores, replicas);
          for (std::size_t store = 1; store < stores; ++store) {
            if (((lost | more) >> (store - 1) & 1U) != 0) out.lose(store);
          }
          return out;
        };
        if (!with(0).without_copy().empty()) continue;
        std::size_t least = stores - 1 - with(0).lost().size();  // all of them
        for (std::size_t more = 0; more < std::size_t{1} << (stores - 1); ++more) {
          const StoreReplicas after = with(more);
          if (after.without_copy().empty()) continue;
          const std::size_t further = after.lost().size() - with(0).lost().size();
          least = std::min(least, further - 1);
        }
        EXPECT_EQ(with(0).spare(), least) << stores << " " << replicas << " " << lost;
      }
    }
  }
}

}  // namespace
}  // namespace regroup::job
