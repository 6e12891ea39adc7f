// The Allocator door: this machine, and the fake.
#include "launcher/alloc/allocator.h"

#include <gtest/gtest.h>
#include <sched.h>

namespace regroup::launcher {
namespace {

TEST(ThisMachine, HasASlotForEachCoreOfTheAffinityMask) {
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  auto all = make_this_machine()->allocation();
  ASSERT_TRUE(all.ok()) << all.status().to_string();
  ASSERT_EQ(all->hosts.size(), 1U);
  EXPECT_EQ(all->slots(), static_cast<std::uint32_t>(CPU_COUNT(&before)));
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(all->hosts[0].cores.back(), &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  auto narrowed = make_this_machine()->allocation();
  ASSERT_EQ(::sched_setaffinity(0, sizeof before, &before), 0);
  ASSERT_TRUE(narrowed.ok());
  EXPECT_EQ(narrowed->slots(), 1U);
  EXPECT_EQ(narrowed->hosts[0].cores, std::vector<int>{all->hosts[0].cores.back()});
}

TEST(FakeAllocator, CountsItsChanges) {
  FakeAllocator fake({1, {{"a", 2, {0, 1}}, {"b", 3, {}}}});
  EXPECT_EQ(fake.allocation()->slots(), 5U);
  fake.change({{"a", 1, {0}}});
  EXPECT_EQ(fake.allocation()->slots(), 1U);
  EXPECT_EQ(fake.allocation()->number, 2U);
}

}  // namespace
}  // namespace regroup::launcher
