// The ways to bring agents to hosts, all through the conformance suite.
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/status.h"
#include "launcher/agent/fake_spawner.h"
#include "tests/launcher/agent/spawner_conformance.h"

namespace regroup::agent {
namespace {

SpawnOptions options_of(const SpawnerSetting& setting, const std::string& path) {
  return {.environment = {{"PATH", path}}, .parallel = setting.parallel, .limit = setting.limit};
}

MadeSpawner make_fork(const SpawnerSetting& setting) {
  return {make_fork_spawner(setting.loop, setting.secret, setting.events,
                            options_of(setting, "/usr/bin:/bin"))
              .value()};
}

// A program of that name, which is given what ssh is: options, the host, /bin/sh.
MadeSpawner make_ssh(const SpawnerSetting& setting) {
  const std::string bin = setting.folder + "/bin";
  std::filesystem::create_directory(bin);
  std::ofstream(bin + "/ssh")
      << "#!/bin/sh\n"
         "while [ $# -gt 2 ]; do shift; done\n"
         "[ $2 = /bin/sh ] || exit 1\n"
         "[ $1 = hung ] && exec sleep 1000\n"
         "[ $1 = refused ] && echo 'Permission denied (publickey).' >&2 && exit 255\n"
         "exec $2\n";
  std::filesystem::permissions(bin + "/ssh", std::filesystem::perms::owner_all);
  return {make_ssh_spawner(setting.loop, setting.secret, setting.events,
                           options_of(setting, bin + ":/usr/bin:/bin"))
              .value()};
}

MadeSpawner make_fake(const SpawnerSetting& setting) {
  auto fake = std::make_unique<FakeSpawner>(
      setting.loop, setting.events,
      FakeSpawnerOptions{.parallel = setting.parallel, .limit = setting.limit});
  fake->leave("leaves", base::internal_error("leaves: the agent ended with status 7"));
  fake->stay("stays");
  fake->fail("refused", {base::Code::kUnavailable, "refused: nobody is let in"});
  fake->delay("hung", base::Duration::max());
  FakeSpawner& it = *fake;
  return {std::move(fake), [&it](proto::NodeId node) { it.say(node, "ready"); }};
}

const SpawnerWay kFork{"Fork", make_fork}, kSsh{"Ssh", make_ssh}, kFake{"Fake", make_fake};

}  // namespace

INSTANTIATE_TEST_SUITE_P(Fork, SpawnerConformance, testing::Values(kFork), name_of_way);
INSTANTIATE_TEST_SUITE_P(Ssh, SpawnerConformance, testing::Values(kSsh), name_of_way);
INSTANTIATE_TEST_SUITE_P(Ssh, SpawnerFailures, testing::Values(kSsh), name_of_way);
INSTANTIATE_TEST_SUITE_P(Fake, SpawnerConformance, testing::Values(kFake), name_of_way);
INSTANTIATE_TEST_SUITE_P(Fake, SpawnerFailures, testing::Values(kFake), name_of_way);

}  // namespace regroup::agent
