// Whether the cores that members may run on suffice for all of them.
#include "collective/shm/cores.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace regroup::collective::testing::shm_cores {
namespace {

shm::Cores set_of(const std::vector<std::size_t>& cores) {
  shm::Cores out{};
  for (const std::size_t core : cores) out[core / 64] |= std::uint64_t{1} << core % 64;
  return out;
}

struct Row {
  const char* what;
  std::vector<std::vector<std::size_t>> cores;  // of each member that is known
  std::size_t others;                           // members
  bool suffice;
};
const Row kRows[] = {
    {"each its own", {{0}, {1}, {2}}, 0, true},
    {"two on one", {{0}, {0}}, 0, false},
    {"two on one, the third anywhere", {{0}, {0}, {0, 1, 2, 3}}, 0, false},
    {"the third anywhere, two on one", {{0, 1, 2, 3}, {0}, {0}}, 0, false},
    {"one on one, two anywhere", {{0}, {0, 1, 2}, {0, 1, 2}}, 0, true},
    {"one on one, two anywhere else but there are none", {{0}, {0, 1}, {0, 1}}, 0, false},
    {"three on one half, one on the other", {{0, 1}, {0, 1}, {0, 1}, {2, 3}}, 0, false},
    {"two on each half", {{0, 1}, {0, 1}, {2, 3}, {2, 3}}, 0, true},
    {"halves that overlap, all of them too few", {{0, 1}, {1, 2}, {0, 2}, {0, 1}}, 0, false},
    {"all anywhere", {{0, 1}, {0, 1}}, 0, true},
    {"beyond the first word", {{63}, {64}, {1023}}, 0, true},
    {"two on one, beyond the first word", {{1023}, {1023}, {0, 1, 2, 1023}}, 0, false},
    {"others may be anywhere", {{0, 1}, {0, 1, 2}}, 1, true},
    {"others have no core left", {{0, 1}, {0, 1, 2}}, 2, false},
    {"of one nothing is known", {{0, 1}, {}}, 0, false},
    {"nothing is known", {}, 1, false},
};

TEST(Cores, SufficeIfEachMemberCanHaveOne) {
  for (const Row& row : kRows) {
    std::vector<shm::Cores> cores;
    for (const auto& one : row.cores) cores.push_back(set_of(one));
    EXPECT_EQ(shm::suffice(cores, cores.size() + row.others), row.suffice) << row.what;
  }
}

TEST(Cores, FindCoresOfThisThread) {
  EXPECT_GT(collective::shm::count(collective::shm::own_cores()), 0U);
}

}  // namespace
}  // namespace regroup::collective::testing::shm_cores
