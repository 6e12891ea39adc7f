// Networks with rails: NIC i of each host meets NIC i of the others, and the others only through
// the spine.
#include "launcher/placement/rails.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/launcher/placement/machines.h"

namespace regroup::placement {
namespace {

// Four GPUs, each with a NIC and a NUMA node of its own; 2 GB/s lead from one node to another.
topology::Machine four_by_four() {
  std::string text = "cpu amd sys=2\n";
  for (int i = 0; i < 4; ++i)
    text += fmt::format(
        "numa {0} cpus={0}\nswitch p{0} at=numa:{0}\ngpu {0} at=p{0} model=A arch=sm80 memory=8\n"
        "nic n{0} at=p{0} kind=ib speed=96\n",
        i);
  return machine_of_text(text);
}

// Two hosts on one group of rails below a spine.
topology::Fabric railed(std::uint32_t rails, double up_gbytes) {
  topology::Fabric out;
  out.machines.push_back(four_by_four());
  out.nodes.push_back({.name = "spine", .level = 1});
  out.nodes.push_back({.name = "group", .parent = 0, .up_gbytes = up_gbytes, .rails = rails});
  out.hosts = {{"h0", 0, 1}, {"h1", 0, 1}};
  return out;
}

double gbytes(const topology::Fabric& fabric, GpuSet first, GpuSet second) {
  PlacementScorers scorers(fabric);
  return predict(scorers, {{0, first, 0xf}, {1, second, 0xf}}).gbytes;
}

TEST(Rails, RingsOnOneRailHaveFullBandwidth) {
  EXPECT_NEAR(gbytes(railed(4, 1), set_of({2}), set_of({2})), 12, 0.1);
  EXPECT_NEAR(gbytes(railed(4, 1), set_of({0, 1}), set_of({0, 1})),
              gbytes(railed(0, 0), set_of({0, 1}), set_of({0, 1})), 1e-6);
}

TEST(Rails, RingsAcrossRailsUseTheUplinks) {
  const double free = gbytes(railed(0, 0), set_of({0}), set_of({3}));
  const double narrow = gbytes(railed(4, 1), set_of({0}), set_of({3}));
  EXPECT_LT(narrow, free);
  EXPECT_GE(narrow, 1);  // what the spine carries, at the least
  topology::Fabric none = railed(4, 0);
  EXPECT_NEAR(gbytes(none, set_of({0}), set_of({3})), free,
              1e-6);  // links upward that are never narrow
  const Prediction told = [&] {
    static const topology::Fabric kFabric = railed(4, 1);
    PlacementScorers scorers(kFabric);
    return predict(scorers, {{0, set_of({0}), 0xf}, {1, set_of({3}), 0xf}});
  }();
  EXPECT_THAT(told.narrow,
              testing::HasSubstr("switch group upward, which lead from one rail to another"));
}

TEST(Rails, ChoosesGpusOfTheSameRailsOnOtherHosts) {
  const topology::Fabric fabric = railed(4, 0.5);
  DeviceRequest request;
  request.sets = 2;
  request.sets_per_host = 1;
  auto placement = place_on_devices(fabric, {{0, set_of({3}), {}}, {1, 0xf, {}}}, request);
  ASSERT_TRUE(placement.ok()) << placement.status().message();
  EXPECT_EQ(taken(*placement)[1], set_of({3}));
  EXPECT_NEAR(placement->predicted.gbytes, 12, 0.1);
}

TEST(Rails, SharedNicsHaveLessBandwidthThanExclusiveOnes) {
  const topology::Machine machine = machine_of_text(
      "cpu amd\nnuma 0 cpus=0-7\nswitch p at=numa:0\ngpu 0-3 at=p model=A arch=sm80 memory=8\n"
      "nic n at=p kind=ib speed=40\n");
  const topology::Fabric fabric = topology::flat_fabric(machine, host_names(4));
  PlacementScorers scorers(fabric);
  const Prediction shared = predict(scorers, {{0, 0x3, 0xf}, {1, 0x3, 0xf}});
  const Prediction own = predict(scorers, {{0, 1, 0xf}, {1, 1, 0xf}, {2, 1, 0xf}, {3, 1, 0xf}});
  EXPECT_NEAR(shared.outward * 2, own.outward, 1e-6);
}

}  // namespace
}  // namespace regroup::placement
