// What ranks are told of their devices.
#include "launcher/place/rank_environment.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/launcher/place/machines.h"

namespace regroup::launcher {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Key;
using testing::Not;
using testing::Pair;

Machine named() {
  Machine machine = dgx_1v();
  for (std::size_t i = 0; i < machine.gpus.size(); ++i)
    machine.gpus[i].uuid = "GPU-" + std::to_string(i) + "abc";
  return machine;
}

DevicePlacement placed(const Fabric& fabric, GpuSet free, std::uint32_t ranks) {
  DeviceRequest request;
  request.sets = ranks;
  auto out = place_on_devices(fabric, {{0, free, {}}}, request);
  EXPECT_TRUE(out.ok()) << out.status().message();
  return *out;
}

TEST(RankEnvironment, NamesGpusByUuidAndNicsByPort) {
  const Fabric fabric = one_host(named());
  const auto ranks = rank_environments(fabric, placed(fabric, set_of({0, 3}), 2), 0, "/x/topo.xml", {});
  ASSERT_EQ(ranks.size(), 2U);
  EXPECT_EQ(ranks[0].at("CUDA_VISIBLE_DEVICES"), "GPU-0abc");
  EXPECT_EQ(ranks[1].at("CUDA_VISIBLE_DEVICES"), "GPU-3abc");
  EXPECT_EQ(ranks[0].at("UCX_NET_DEVICES"), "mlx5_0:1");
  EXPECT_EQ(ranks[1].at("UCX_NET_DEVICES"), "mlx5_1:1");
  for (const Environment& rank : ranks) {
    EXPECT_EQ(rank.at("NCCL_IB_HCA"), "=mlx5_0:1,mlx5_1:1");  // the same for all: they must agree
    EXPECT_EQ(rank.at("NCCL_TOPO_FILE"), "/x/topo.xml");
    EXPECT_THAT(rank, Not(Contains(Key("OMP_PROC_BIND"))));
  }
  const auto told = nlohmann::json::parse(ranks[1].at("REGROUP_PLACEMENT"));
  EXPECT_EQ(told["gpus"][0]["uuid"], "GPU-3abc");
  EXPECT_EQ(told["numa"], 0);
  EXPECT_THAT(std::string(told["why"]), HasSubstr("GPU 3, mlx5_1 is near it"));
}

TEST(RankEnvironment, LeavesWhatTheUserSays) {
  const Fabric fabric = one_host(named());
  const auto ranks = rank_environments(fabric, placed(fabric, 1, 1), 0, "", {{"NCCL_IB_HCA", "mlx5_2"}});
  EXPECT_THAT(ranks[0], Not(Contains(Key("NCCL_IB_HCA"))));
  EXPECT_THAT(ranks[0], Not(Contains(Key("NCCL_TOPO_FILE"))));
}

TEST(RankEnvironment, NumbersGpusWithoutUuidAndSpeaksToAmd) {
  const Fabric fabric = one_host(dgx_1v());
  EXPECT_EQ(rank_environments(fabric, placed(fabric, 4, 1), 0, "", {})[0].at("CUDA_VISIBLE_DEVICES"), "2");
  const Fabric amd = one_host(
      machine_of_text("cpu amd\nnuma 0 cpus=0-3\ngpu 0 at=numa:0 model=MI250X arch=gfx90a memory=64\n"
                      "nic eth0 at=numa:0 kind=ethernet speed=100 interface=ens1\n"));
  const Environment rank = rank_environments(amd, placed(amd, 1, 1), 0, "", {})[0];
  EXPECT_THAT(rank, Contains(Pair("ROCR_VISIBLE_DEVICES", "0")));
  EXPECT_THAT(rank, Contains(Pair("NCCL_SOCKET_IFNAME", "=ens1")));
  EXPECT_THAT(rank, Contains(Pair("UCX_NET_DEVICES", "ens1")));
  EXPECT_THAT(rank, Not(Contains(Key("CUDA_VISIBLE_DEVICES"))));
}

TEST(VisibleGpus, FollowsTheEnvironment) {
  const Machine machine = named();
  EXPECT_EQ(*visible_gpus(machine, {}), 0xffU);
  EXPECT_EQ(*visible_gpus(machine, {{"CUDA_VISIBLE_DEVICES", "3,GPU-5a"}}), set_of({3, 5}));
  EXPECT_EQ(*visible_gpus(machine, {{"CUDA_VISIBLE_DEVICES", ""}}), 0U);
  EXPECT_THAT(visible_gpus(machine, {{"CUDA_VISIBLE_DEVICES", "9"}}).status().message(),
              HasSubstr("CUDA_VISIBLE_DEVICES=9: 9 is no GPU"));
}

}  // namespace
}  // namespace regroup::launcher
