// The variables that describe a rank's devices.
#include "launcher/placement/rank_environment.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "launcher/placement/visible_gpus.h"
#include "launcher/topology/paths.h"
#include "tests/launcher/placement/machines.h"

namespace regroup::placement {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Key;
using testing::Not;
using testing::Pair;

topology::Machine named() {
  topology::Machine machine = dgx_1v();
  for (std::size_t i = 0; i < machine.gpus.size(); ++i)
    machine.gpus[i].uuid = "GPU-" + std::to_string(i) + "abc";
  return machine;
}

DevicePlacement placed(const topology::Fabric& fabric, GpuSet free, std::uint32_t ranks) {
  DeviceRequest request;
  request.sets = ranks;
  auto out = place_on_devices(fabric, {{0, free, {}}}, request);
  EXPECT_TRUE(out.ok()) << out.status().message();
  return *out;
}

TEST(RankEnvironment, NamesGpusByUuidAndNicsByPort) {
  const topology::Fabric fabric = one_host(named());
  const auto ranks =
      rank_environments(fabric, placed(fabric, set_of({0, 3}), 2).ranks, "/x/topo.xml", {});
  ASSERT_EQ(ranks.size(), 2U);
  EXPECT_EQ(ranks[0].at("CUDA_VISIBLE_DEVICES"), "GPU-0abc");
  EXPECT_THAT(ranks[0], Not(Contains(Key("CUDA_DEVICE_ORDER"))));
  EXPECT_EQ(ranks[1].at("CUDA_VISIBLE_DEVICES"), "GPU-3abc");
  EXPECT_EQ(ranks[0].at("UCX_NET_DEVICES"), "mlx5_0:1");
  EXPECT_EQ(ranks[1].at("UCX_NET_DEVICES"), "mlx5_1:1");
  for (const spec::Environment& rank : ranks) {
    EXPECT_EQ(rank.at("NCCL_IB_HCA"), "=mlx5_0:1,mlx5_1:1");  // the same for all: they must agree
    EXPECT_EQ(rank.at("NCCL_TOPO_FILE"), "/x/topo.xml");
    EXPECT_THAT(rank, Not(Contains(Key("OMP_PROC_BIND"))));
  }
  const auto told = nlohmann::json::parse(ranks[1].at("REGROUP_PLACEMENT"));
  EXPECT_EQ(told["gpus"][0]["uuid"], "GPU-3abc");
  EXPECT_EQ(told["numa"], 0);
  EXPECT_THAT(std::string(told["why"]), HasSubstr("GPU 3, nearest NIC mlx5_1"));
}

TEST(RankEnvironment, LeavesOutNicsThatAreDownOrSlow) {
  topology::Machine machine = named();
  machine.nics[0].up = false;
  topology::find_paths(machine);
  const topology::Fabric fabric = one_host(machine);
  const spec::Environment rank =
      rank_environments(fabric, placed(fabric, set_of({0}), 1).ranks, "", {})[0];
  EXPECT_THAT(rank.at("UCX_NET_DEVICES"), Not(HasSubstr("mlx5_0")));
  EXPECT_THAT(rank.at("NCCL_IB_HCA"), AllOf(HasSubstr("mlx5_"), Not(HasSubstr("mlx5_0"))));
  const topology::Fabric untold = one_host(machine_of_text(
      "numa 0\ngpu 0 at=numa:0 model=A arch=sm80\nnic eth0 at=numa:0 kind=ethernet\n"
      "nic eth1 at=numa:0 kind=ethernet speed=25\n"));
  const spec::Environment slow = rank_environments(untold, placed(untold, 1, 1).ranks, "", {})[0];
  EXPECT_EQ(slow.at("UCX_NET_DEVICES"), "eth1");  // what eth0 carries nobody tells
}

TEST(RankEnvironment, NamesInterfacesWithAnAddressOnly) {
  topology::Machine machine = machine_of_text(
      "numa 0\ngpu 0 at=numa:0 model=A arch=sm80\nnic mlx5_0 at=numa:0 kind=roce speed=100 "
      "interface=ens1\n"
      "nic mlx5_1 at=numa:0 kind=roce speed=100 interface=ens2\n");
  machine.nics[0].addressed = false;
  const topology::Fabric fabric = one_host(machine);
  const spec::Environment rank = rank_environments(fabric, placed(fabric, 1, 1).ranks, "", {})[0];
  EXPECT_EQ(rank.at("NCCL_IB_HCA"), "=mlx5_0:1,mlx5_1:1");
  EXPECT_EQ(rank.at("NCCL_SOCKET_IFNAME"), "=ens2");
}

TEST(RankEnvironment, NamesNicsAsTheirHostDoes) {
  const topology::Fabric fabric = one_host(named());  // from a file
  const auto ranks = placed(fabric, set_of({0, 3}), 2).ranks;
  HostDevices own;
  own.nics.resize(4);
  EXPECT_THAT(rank_environments(fabric, ranks, "", {}, {own})[0],
              AllOf(Not(Contains(Key("UCX_NET_DEVICES"))), Not(Contains(Key("NCCL_IB_HCA"))),
                    Not(Contains(Key("NCCL_SOCKET_IFNAME")))));
  own.nics[1].name = "mlx5_7";
  own.nics[1].kind = topology::NicKind::kRoce;
  own.nics[1].interface = "ens7";
  const auto told = rank_environments(fabric, ranks, "", {}, {own});
  EXPECT_THAT(told[0], Not(Contains(Key("UCX_NET_DEVICES"))));
  EXPECT_EQ(told[1].at("UCX_NET_DEVICES"), "mlx5_7:1");
  EXPECT_EQ(told[0].at("NCCL_IB_HCA"), "=mlx5_7:1");
  EXPECT_EQ(told[0].at("NCCL_SOCKET_IFNAME"), "=ens7");
}

TEST(RankEnvironment, KeepsVariablesThatTheUserHasSet) {
  const topology::Fabric fabric = one_host(named());
  const auto ranks =
      rank_environments(fabric, placed(fabric, 1, 1).ranks, "", {{"NCCL_IB_HCA", "mlx5_2"}});
  EXPECT_THAT(ranks[0], Not(Contains(Key("NCCL_IB_HCA"))));
  EXPECT_THAT(ranks[0], Not(Contains(Key("NCCL_TOPO_FILE"))));
}

TEST(RankEnvironment, NumbersGpusWithoutUuidAndSetsVariablesOfAmd) {
  const topology::Fabric fabric = one_host(dgx_1v());
  const spec::Environment by_number =
      rank_environments(fabric, placed(fabric, 4, 1).ranks, "", {})[0];
  EXPECT_EQ(by_number.at("CUDA_VISIBLE_DEVICES"), "2");
  EXPECT_EQ(by_number.at("CUDA_DEVICE_ORDER"), "PCI_BUS_ID");
  const topology::Fabric amd = one_host(machine_of_text(
      "cpu amd\nnuma 0 cpus=0-3\ngpu 0 at=numa:0 model=MI250X arch=gfx90a memory=64\n"
      "nic eth0 at=numa:0 kind=ethernet speed=100 interface=ens1\n"));
  const spec::Environment rank = rank_environments(amd, placed(amd, 1, 1).ranks, "", {})[0];
  EXPECT_THAT(rank, Contains(Pair("ROCR_VISIBLE_DEVICES", "0")));
  EXPECT_THAT(rank, Contains(Pair("NCCL_SOCKET_IFNAME", "=ens1")));
  EXPECT_THAT(rank, Contains(Pair("UCX_NET_DEVICES", "ens1")));
  EXPECT_THAT(rank, Not(Contains(Key("CUDA_VISIBLE_DEVICES"))));
  const spec::Environment nested =
      rank_environments(amd, placed(amd, 1, 1).ranks, "", {{"HIP_VISIBLE_DEVICES", "2"}})[0];
  EXPECT_EQ(nested.at("HIP_VISIBLE_DEVICES"), "0");  // of the one that it has
}

TEST(VisibleGpus, ReadsTheVariablesOfNvidia) {
  const topology::Machine machine = named();
  EXPECT_EQ(*visible_gpus(machine, {}), 0xffU);
  EXPECT_EQ(*visible_gpus(machine, {{"CUDA_VISIBLE_DEVICES", "3,GPU-5a"}}), set_of({3, 5}));
  EXPECT_EQ(*visible_gpus(machine, {{"CUDA_VISIBLE_DEVICES", ""}}), 0U);
  EXPECT_THAT(visible_gpus(machine, {{"CUDA_VISIBLE_DEVICES", "9"}}).status().message(),
              HasSubstr("CUDA_VISIBLE_DEVICES=9: 9 is not a GPU"));
  EXPECT_THAT(visible_gpus(machine, {{"CUDA_VISIBLE_DEVICES", "GPU-"}}).status().message(),
              HasSubstr("GPU- is a prefix of several"));
  EXPECT_EQ(*visible_gpus(machine, {{"CUDA_VISIBLE_DEVICES", "2,-1,3"}}), set_of({2}));
  EXPECT_EQ(*visible_gpus(machine, {{"CUDA_VISIBLE_DEVICES", "NoDevFiles"}}), 0U);
  EXPECT_EQ(*visible_gpus(machine, {{"ROCR_VISIBLE_DEVICES", "1"}}), 0xffU);  // none of AMD here
}

TEST(VisibleGpus, ReadsUuidsOfAmdGpus) {
  topology::Machine machine =
      machine_of_text("numa 0\ngpu 0-2 at=numa:0 model=MI250X arch=gfx90a\n");
  machine.gpus[1].uuid = "GPU-d1af48b5779bd3a4";
  machine.gpus[2].uuid = "GPU-0000000000000123";
  EXPECT_EQ(*visible_gpus(machine, {{"ROCR_VISIBLE_DEVICES", "GPU-D1AF48B5779BD3A4"}}),
            set_of({1}));
  EXPECT_EQ(
      *visible_gpus(machine, {{"ROCR_VISIBLE_DEVICES", "0,GPU-00"}, {"HIP_VISIBLE_DEVICES", "1"}}),
      set_of({2}));
  EXPECT_EQ(visible_gpus(machine, {{"HIP_VISIBLE_DEVICES", "GPU-77"}}).status().message(),
            "HIP_VISIBLE_DEVICES=GPU-77: GPU-77 is not a GPU of this machine");
  const spec::Environment rank =
      rank_environments(one_host(machine), placed(one_host(machine), 2, 1).ranks, "", {})[0];
  EXPECT_EQ(rank.at("ROCR_VISIBLE_DEVICES"), "GPU-d1af48b5779bd3a4");
}

TEST(VisibleGpus, ReadsMigDevicesByUuidAndTheFirstByNumber) {
  topology::Machine machine = dgx_1v();
  machine.gpus[1].number = 0;  // two slices of GPU 0
  machine.gpus[0].uuid = "MIG-aaaa";
  machine.gpus[1].uuid = "MIG-bbbb";
  EXPECT_EQ(*visible_gpus(machine, {{"CUDA_VISIBLE_DEVICES", "MIG-bb"}}), set_of({1}));
  EXPECT_EQ(*visible_gpus(machine, {{"CUDA_VISIBLE_DEVICES", "0"}}), set_of({0}));
}

TEST(VisibleGpus, AppliesTheVariablesOfAmdOneAfterTheOther) {
  const topology::Machine machine =
      machine_of_text("numa 0\ngpu 0-3 at=numa:0 model=MI250X arch=gfx90a\n");
  const auto left = [&](const spec::Environment& own) {
    const auto out = visible_gpus(machine, own);
    EXPECT_TRUE(out.ok()) << out.status().message();
    return out.ok() ? *out : 0;
  };
  EXPECT_EQ(left({{"ROCR_VISIBLE_DEVICES", "3,1"}}), set_of({1, 3}));
  EXPECT_EQ(left({{"ROCR_VISIBLE_DEVICES", "3,1"}, {"HIP_VISIBLE_DEVICES", "0"}}), set_of({3}));
  EXPECT_EQ(left({{"HIP_VISIBLE_DEVICES", "2"}, {"CUDA_VISIBLE_DEVICES", "1"}}), set_of({2}));
  EXPECT_EQ(left({{"CUDA_VISIBLE_DEVICES", "1"}, {"GPU_DEVICE_ORDINAL", "3"}}), set_of({1}));
  EXPECT_EQ(left({{"GPU_DEVICE_ORDINAL", "3,-1,0"}}), set_of({3}));
  EXPECT_EQ(left({{"HIP_VISIBLE_DEVICES", ""}}), set_of({0, 1, 2, 3}));  // as if it were not set
  EXPECT_EQ(left({{"ROCR_VISIBLE_DEVICES", ""}}), 0U);
  EXPECT_EQ(visible_gpus(machine, {{"ROCR_VISIBLE_DEVICES", "1,GPU-d1af"}}).status().message(),
            "ROCR_VISIBLE_DEVICES=1,GPU-d1af: GPU-d1af: the UUIDs of this machine's GPUs are "
            "unknown; use "
            "its number");
  EXPECT_EQ(visible_gpus(machine, {{"ROCR_VISIBLE_DEVICES", "3,1"}, {"HIP_VISIBLE_DEVICES", "3"}})
                .status()
                .message(),
            "HIP_VISIBLE_DEVICES=3: 3: expected one of the 2 GPU(s) that ROCR_VISIBLE_DEVICES=3,1 "
            "leaves, "
            "counted from 0");
}

}  // namespace
}  // namespace regroup::placement
