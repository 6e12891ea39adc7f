// Recorded trees of sysfs, a fake NVML, this machine, and the cache of what was found.
#include "launcher/topology/discover.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "launcher/topology/host_nics.h"
#include "launcher/topology/load_machine.h"
#include "launcher/topology/machine_cache.h"
#include "launcher/topology/nvml.h"
#include "launcher/topology/text_input.h"

namespace regroup::topology {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

// A folder of its own, removed at the end.
class Discover : public testing::Test {
 protected:
  Discover() {
    std::string name = fs::temp_directory_path() / "regroup-topo-XXXXXX";
    root_ = ::mkdtemp(name.data());
  }
  ~Discover() override { fs::remove_all(root_); }

  void file(const fs::path& path, std::string_view text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }

  // "PATH = TEXT" is a file, "PATH -> PATH" a link; \n in TEXT ends a line.
  DiscoverOptions tree(const std::string& name) const {
    std::ifstream in("tests/machines/" + name + ".sysfs");
    EXPECT_TRUE(in.good()) << name;
    for (std::string line; std::getline(in, line);) {
      if (const std::size_t link = line.find(" -> "); link != std::string::npos) {
        fs::create_directories((root_ / "sys" / line.substr(0, link)).parent_path());
        fs::create_directories(root_ / "sys" / line.substr(link + 4));
        fs::create_symlink(root_ / "sys" / line.substr(link + 4),
                           root_ / "sys" / line.substr(0, link));
      } else if (const std::size_t equals = line.find(" = "); equals != std::string::npos) {
        std::string text = line.substr(equals + 3);
        for (std::size_t at = 0; (at = text.find("\\n", at)) != std::string::npos;)
          text.replace(at, 2, "\n");
        file(fs::path("sys") / line.substr(0, equals), text);
      }
    }
    file("cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143");
    file("boot", "boot-1");
    fs::create_directories(root_ / "cache");
    DiscoverOptions out;
    out.roots = {root_ / "sys", root_ / "cpuinfo", root_ / "dev", root_ / "nvidia"};
    out.boot_id = root_ / "boot";
    out.nvml = FAKE_NVML;
    out.processors = Topology();
    return out;
  }

  // What no key tells, so that a look at the machine differs from what was kept.
  void change_what_is_found() {
    file("sys/devices/system/node/node0/cpulist", fmt::format("0-{}", looks_++));
  }

  bool is_anew(const DiscoverOptions& options) {
    change_what_is_found();
    return found(options).numas[0].cpus.size() == static_cast<std::size_t>(looks_);
  }

  Machine found(const DiscoverOptions& options) const {
    auto machine = discover_machine(options);
    EXPECT_TRUE(machine.ok()) << machine.status().message();
    return machine.ok() ? *machine : Machine();
  }

  [[nodiscard]] fs::path cache() const { return root_ / "cache" / "machine.json"; }

  fs::path root_;
  int looks_ = 0;
};

std::string brief(const Path& path) {
  return fmt::format("{} {:.4g}", path_class_name(path.cls), path.gbytes);
}

TEST_F(Discover, SysfsTellsCardsWithKindSpeedAndPlace) {
  const Machine machine = found(tree("nvidia-ib"));
  std::vector<std::string> nics;
  for (const Nic& nic : machine.nics)
    nics.push_back(fmt::format("{}:{} {} {} {} numa {}", nic.name, nic.port,
                               nic_kind_name(nic.kind), nic.gbits, nic.interface,
                               machine.numas[nic.numa].number));
  EXPECT_THAT(nics, testing::UnorderedElementsAre(
                        "mlx5_0:1 ib 200 ib0 numa 0", "mlx5_1:1 roce 100 ens1f0 numa 1",
                        "mlx5_1:2 roce 25 ens1f1 numa 1", "efa_0:1 efa 100  numa 0",
                        "eth0:1 ethernet 10 eth0 numa 0", "eth1:1 ethernet 0 eth1 numa 0"));
  EXPECT_THAT(machine.guesses,
              testing::Contains(HasSubstr("0000:00:06.0: nearest NUMA node unknown")));
}

TEST_F(Discover, ARecordedVirtualMachineHasItsCardAndNoGhosts) {
  DiscoverOptions options = tree("virtual-machine");
  options.roots.addressed = {"eth0", "lo"};
  const Machine machine = found(options);
  EXPECT_TRUE(machine.gpus.empty());
  ASSERT_EQ(machine.numas.size(), 1U);
  EXPECT_THAT(machine.numas[0].cpus, ElementsAre(0, 1));
  ASSERT_EQ(machine.nics.size(), 1U);  // neither lo nor ifb0, which hang on nothing
  const Nic& nic = machine.nics[0];
  EXPECT_EQ(fmt::format("{} {} {} {}", nic.name, nic_kind_name(nic.kind), nic.gbits, nic.bus_id),
            "eth0 ethernet 0 0000:00:03.0");
  EXPECT_TRUE(nic.up && nic.addressed);
}

TEST_F(Discover, ARecordedVirtualMachineWithAnH200HasItAlsoWithoutNvml) {
  DiscoverOptions options = tree("h200-vm");
  options.nvml = root_ / "none.so";
  const Machine machine = found(options);
  ASSERT_EQ(machine.gpus.size(), 1U);
  EXPECT_EQ(machine.gpus[0].bus_id, "0000:00:06.0");
  ASSERT_EQ(machine.numas.size(), 1U);  // sysfs says -1 for each device
  EXPECT_EQ(machine.numas[0].cpus.size(), 16U);
  EXPECT_EQ(brief(machine.path(machine.gpu_end(0), machine.nic_end(0))), "PHB 12");
  EXPECT_THAT(machine.guesses, testing::Contains(HasSubstr("none.so")));
}

TEST_F(Discover, TellsWhichCardsAreUp) {
  DiscoverOptions options = tree("nvidia-ib");
  options.cache_folder = root_ / "cache";
  options.roots.addressed = {"ens1f0", "eth0", "eth1"};
  const auto states = [&] {
    std::map<std::string, std::string> out;
    for (const Nic& nic : found(options).nics)
      out[fmt::format("{}:{}", nic.name, nic.port)] =
          fmt::format("{}{}", nic.up ? "up" : "down", nic.addressed ? " addressed" : "");
    return out;
  };
  const auto port = [&](const char* state) {
    file("sys/class/infiniband/mlx5_0/ports/1/state", state);
  };
  port("4: ACTIVE");
  file("sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN");
  file("sys/class/net/ens1f0/operstate", "down");
  file("sys/class/net/eth0/operstate", "lowerlayerdown");
  file("sys/class/net/eth1/operstate", "up");  // virtio: without speed
  auto now = states();
  EXPECT_EQ(now["mlx5_0:1"], "up") << "ib0 has no address";
  EXPECT_EQ(now["mlx5_1:1"], "down");
  EXPECT_EQ(now["mlx5_1:2"], "up") << "what no file tells is taken to be";
  EXPECT_EQ(now["eth0:1"], "down");
  EXPECT_EQ(now["eth1:1"], "up addressed");
  port("2: INIT");  // no subnet manager: seen although the cache knows it as up
  now = states();
  EXPECT_EQ(now["mlx5_0:1"], "down");
  options.roots.addressed = {};
  EXPECT_EQ(states()["eth1:1"], "up");
}

TEST_F(Discover, CardsOfAFileAreFoundByTheirBusId) {
  DiscoverOptions options = tree("nvidia-ib");
  options.roots.addressed = {"ens1f1"};
  const auto file = parse_machine(
      "numa 0\nnic net0 at=numa:0 bus=1c:00.0 kind=ib\ncard c at=numa:0\n"
      "nic net1 at=c bus=5f:00.0 kind=roce port=2\nnic net2 at=numa:0 bus=0101:00:00.0 kind=ib\n"
      "nic eth0 at=numa:0\nnic net3 at=numa:0\n",
      "test");
  ASSERT_TRUE(file.ok()) << file.status().message();
  const std::vector<Nic> nics = host_nics(*file, options.roots);
  ASSERT_EQ(nics.size(), 5U);
  EXPECT_EQ(nics[0].name, "mlx5_0");
  EXPECT_EQ(nics[1].name, "mlx5_1");
  EXPECT_EQ(nics[1].port, 2);
  EXPECT_EQ(nics[1].interface, "ens1f1");
  EXPECT_TRUE(nics[1].addressed);
  EXPECT_EQ(nics[2].name, "") << "another host's";
  EXPECT_EQ(nics[3].name, "eth0") << "no bus id, but its name";
  EXPECT_EQ(nics[4].name, "");
}

TEST_F(Discover, NvmlTellsGpusAndLinksAndSysfsWhereTheySit) {
  const Machine machine = found(tree("nvidia-ib"));
  ASSERT_EQ(machine.gpus.size(), 5U);
  EXPECT_EQ(machine.gpus[1].bus_id, "0000:1b:00.0");
  EXPECT_EQ(machine.gpus[1].uuid, "GPU-1");
  EXPECT_EQ(machine.gpus[1].arch, "sm80");
  EXPECT_EQ(machine.gpus[2].memory_bytes, 40ULL << 30);
  for (const std::size_t slice : {3, 4}) {
    const Gpu& gpu = machine.gpus[slice];
    EXPECT_EQ(gpu.number, 3);
    EXPECT_EQ(gpu.uuid, slice == 3 ? "MIG-100" : "MIG-101");
    EXPECT_EQ(gpu.product, "NVIDIA A100-SXM4-40GB MIG 3g.20gb");
    EXPECT_EQ(gpu.memory_bytes, 20ULL << 30);
    EXPECT_THAT(gpu.mig, ElementsAre(MigSlice{gpu.uuid, "3g.20gb", 20ULL << 30}));
  }
  EXPECT_EQ(brief(machine.path(3, 4)), "PIX 12")
      << "of one GPU: over its PCIe link, not over NVLink";
  EXPECT_THAT(machine.guesses,
              testing::Contains(HasSubstr("GPU 4 (0000:3f:00.0) is in MIG mode without MIG")));
  EXPECT_EQ(machine.numas[machine.gpus[3].numa].number, 1);
  EXPECT_EQ(machine.numas[1].package, 1U);
  EXPECT_EQ(brief(machine.path(0, 1)), "NVL 40");
  EXPECT_EQ(brief(machine.path(2, 3)), "PHB 10")
      << "generation 4, 8 lanes, through an Intel processor";
  EXPECT_EQ(brief(machine.path(0, 2)), "SYS 10");
  EXPECT_THAT(machine.nv_switches, ElementsAre(Switch{"0000:c4:00.0"}));
  const auto nic = std::find_if(machine.nics.begin(), machine.nics.end(),
                                [](const Nic& n) { return n.name == "mlx5_0"; });
  ASSERT_NE(nic, machine.nics.end());
  const auto end = machine.nic_end(static_cast<std::size_t>(nic - machine.nics.begin()));
  EXPECT_EQ(brief(machine.path(0, end)), "PIX 24") << "generation 4, 16 lanes; the wire has 25";
}

TEST_F(Discover, WithoutNvmlItSaysSo) {
  DiscoverOptions options = tree("nvidia-ib");
  options.nvml = "libnot-there.so";
  const Machine machine = found(options);
  EXPECT_EQ(machine.gpus.size(), 4U);
  EXPECT_EQ(machine.gpus[0].product, "A100-SXM4-40GB");
  EXPECT_THAT(
      machine.guesses,
      testing::Contains(HasSubstr("NVLinks, UUIDs and MIG state are unknown: libnot-there.so")));
}

TEST_F(Discover, AmdGpusAndXgmiComeFromSysfs) {
  const Machine machine = found(tree("amd-xgmi"));
  ASSERT_EQ(machine.gpus.size(), 4U);
  EXPECT_EQ(machine.gpus[0].arch, "gfx90a");
  EXPECT_EQ(machine.gpus[0].uuid, "GPU-d1af48b5779bd3a4");  // above what is signed
  EXPECT_EQ(machine.gpus[1].uuid, "GPU-0000000000000123");
  EXPECT_EQ(machine.gpus[2].uuid, "");  // it has that of another
  EXPECT_EQ(brief(machine.path(0, 1)), "NVL 144");
  EXPECT_EQ(brief(machine.path(0, 2)), "NVL 36");
  EXPECT_EQ(brief(machine.path(0, 3)), "NVB 36");
}

TEST_F(Discover, AnEmptyTreeIsAMachineWithoutDevices) {
  DiscoverOptions options;
  options.roots = {root_ / "nothing", root_ / "nothing"};
  const Machine machine = found(options);
  EXPECT_TRUE(machine.gpus.empty());
  EXPECT_EQ(machine.numas.size(), 1U);
}

TEST_F(Discover, ThisMachineIsReadAndHasItsProcessors) {
  const Machine machine = found({});
  EXPECT_FALSE(machine.processors.threads.empty());
  EXPECT_FALSE(machine.numas.empty());
}

TEST_F(Discover, TheCacheIsTheSameMachineWithoutLooking) {
  DiscoverOptions options = tree("nvidia-ib");
  options.cache_folder = root_ / "cache";
  const Machine first = found(options);
  struct stat info {};
  ASSERT_EQ(::stat(cache().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  change_what_is_found();
  EXPECT_EQ(found(options), first);
}

TEST_F(Discover, OtherDevicesThatMayBeUsedAreLookedAtAnew) {
  for (const char* name : {"nvidia0", "nvidia1", "nvidiactl"}) file(fs::path("dev") / name, "");
  file("nvidia/capabilities/gpu3/mig/gi1/access", "");
  DiscoverOptions options = tree("nvidia-ib");
  options.cache_folder = root_ / "cache";
  file("sys/module/nvidia/version", "550.90");
  const auto anew = [&](std::string_view what) {
    EXPECT_TRUE(is_anew(options)) << what;
    EXPECT_FALSE(is_anew(options)) << what << ": then it is kept";
  };
  anew("nothing was kept");
  fs::remove(root_ / "dev/nvidia1");  // as a device control group of another job leaves it
  anew("a device less");
  file("sys/module/nvidia/version", "560.28");
  anew("another driver");
  file("nvidia/capabilities/gpu3/mig/gi2/access", "");
  anew("an instance of MIG more");
  fs::create_directories(root_ / "sys/bus/pci/devices/0000:77:00.0");
  anew("a card that came");
}

TEST_F(Discover, AFailureOfNvmlIsNotKept) {
  DiscoverOptions options = tree("nvidia-ib");
  options.cache_folder = root_ / "cache";
  options.nvml = "libnot-there.so";
  EXPECT_EQ(found(options).gpus[1].uuid, "");
  options.nvml = FAKE_NVML;
  EXPECT_EQ(found(options).gpus[1].uuid, "GPU-1");
}

TEST_F(Discover, FreshReplacesTheCache) {
  DiscoverOptions options = tree("nvidia-ib");
  options.cache_folder = root_ / "cache";
  EXPECT_TRUE(is_anew(options));
  options.fresh = true;
  EXPECT_TRUE(is_anew(options));
  options.fresh = false;
  change_what_is_found();
  EXPECT_EQ(found(options).numas[0].cpus.size(), 2U);  // as the fresh look found it
}

TEST_F(Discover, AnotherBootIsLookedAtAnew) {
  DiscoverOptions options = tree("nvidia-ib");
  options.cache_folder = root_ / "cache";
  EXPECT_TRUE(is_anew(options));
  EXPECT_FALSE(is_anew(options));
  file("boot", "boot-2");
  EXPECT_TRUE(is_anew(options));
}

TEST_F(Discover, ADamagedOrForeignCacheIsReplaced) {
  DiscoverOptions options = tree("nvidia-ib");
  options.cache_folder = root_ / "cache";
  const Machine first = found(options);
  const std::string good = *read_text_file(cache());
  const std::string key(split(good, ' ')[2]);
  ASSERT_TRUE(read_machine_cache(root_ / "cache", key).has_value());
  const auto again = [&](const std::string& text) {
    std::ofstream(cache(), std::ios::trunc) << text;
    EXPECT_FALSE(read_machine_cache(root_ / "cache", key).has_value());
    EXPECT_EQ(found(options), first);
    EXPECT_EQ(*read_text_file(cache()), good);
  };
  again("");
  again(good.substr(0, good.size() / 2));
  std::string flipped = good;
  flipped[good.size() / 2] ^= 1;
  again(flipped);
  std::string other = good;
  again(other.replace(good.find(' '), 3, " 2 "));  // an older version
  fs::permissions(cache(), fs::perms::others_read, fs::perm_options::add);
  EXPECT_FALSE(read_machine_cache(root_ / "cache", key).has_value());
}

TEST(Nvml, SamplesAGpuByItsUuid) {
  const auto nvml = Nvml::open(FAKE_NVML);
  ASSERT_TRUE(nvml.ok()) << nvml.status().message();
  const auto sample = nvml->sample("GPU-2");
  ASSERT_TRUE(sample.ok());
  EXPECT_EQ(sample->busy_percent, 20);
  EXPECT_EQ(sample->memory_used, 3ULL << 30);
  EXPECT_EQ(sample->memory_total, 40ULL << 30);
  EXPECT_DOUBLE_EQ(sample->watts, 61.5);
  ASSERT_EQ(sample->processes.size(), 2U);
  EXPECT_EQ(sample->processes[0].pid, 4711U);
  EXPECT_EQ(sample->processes[0].memory_used, 1ULL << 30);
  EXPECT_EQ(sample->processes[0].busy_percent, 40);
  EXPECT_FALSE(sample->processes[1].memory_used);
  EXPECT_EQ(sample->processes[1].busy_percent, 0);
  EXPECT_TRUE(nvml->sample("GPU-1")->processes.empty());
  EXPECT_EQ(nvml->sample("GPU-9").code(), base::Code::kNotFound);
}

TEST(Nvml, SaysWhyAGpuIsNotHealthy) {
  const auto nvml = Nvml::open(FAKE_NVML);
  ASSERT_TRUE(nvml.ok()) << nvml.status().message();
  EXPECT_THAT(nvml->sample("GPU-0")->faults,
              testing::ElementsAre("the driver asks for a reset of the GPU",
                                   "2 uncorrectable ECC errors since the driver was loaded",
                                   "a remap of a memory row failed",
                                   "a remap of a memory row waits for a reset of the GPU",
                                   "too hot: its clocks are slowed down",
                                   "the power supply brakes it: its clocks are slowed down"));
  for (const char* healthy : {"GPU-1", "GPU-2", "GPU-3"})
    EXPECT_THAT(nvml->sample(healthy)->faults, testing::IsEmpty()) << healthy;
}

TEST(Nvml, ALibraryThatIsNoneIsUnavailable) {
  EXPECT_EQ(Nvml::open("libnot-there.so").code(), base::Code::kUnavailable);
  const auto other = Nvml::open("libm.so.6");
  EXPECT_THAT(other.status().message(), HasSubstr("libm.so.6: function nvmlInit_v2 is missing"));
}

}  // namespace
}  // namespace regroup::topology
