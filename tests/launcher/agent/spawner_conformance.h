// The conformance suite: what every way to bring agents to hosts promises (spawner.h). One joins it
// so:
//   const SpawnerWay kMine{"Mine", make_mine};
//   INSTANTIATE_TEST_SUITE_P(Mine, SpawnerConformance, testing::Values(kMine), name_of_way);
//   INSTANTIATE_TEST_SUITE_P(Mine, SpawnerFailures, testing::Values(kMine), name_of_way);
// Agents are known by their hosts: those of "good" say "ready" and leave when their input ends, of
// "leaves" end with status 7, of "stays" do not leave; "refused" lets nobody in, "hung" does not
// answer.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "launcher/agent/process_spawner.h"
#include "launcher/agent/spawner.h"
#include "launcher/transport/job_secret.h"

namespace regroup::agent {

struct SpawnerSetting {
  boost::asio::io_context& loop;
  std::string folder;  // of the test
  std::shared_ptr<const transport::JobSecret> secret;
  SpawnEvents events;
  std::size_t parallel = 32;
  base::Duration limit = std::chrono::seconds(5);
};
// `say`: has an agent of "good" that is up say "ready", where it does not by itself.
struct MadeSpawner {
  std::unique_ptr<Spawner> spawner;
  std::function<void(proto::NodeId)> say = [](proto::NodeId) {};
};
struct SpawnerWay {
  const char* name;
  std::function<MadeSpawner(const SpawnerSetting&)> make;
};
[[nodiscard]] inline std::string name_of_way(const testing::TestParamInfo<SpawnerWay>& info) {
  return info.param.name;
}

class SpawnerConformance : public testing::TestWithParam<SpawnerWay> {
 protected:
  using Clock = std::chrono::steady_clock;
  SpawnerConformance();
  ~SpawnerConformance() override;

  void make(std::size_t parallel = 32, base::Duration limit = std::chrono::seconds(5));
  void start(proto::NodeId node, const std::string& host);
  // Whether that was told by now, or will be soon.
  [[nodiscard]] bool told(const std::string& what) const { return at_.contains(what); }
  [[nodiscard]] bool wait(const std::string& what);

  std::string folder_;
  boost::asio::io_context loop_;
  MadeSpawner made_;
  std::vector<std::string> story_;               // "up 1", "line 1 ready", "ended 1"
  std::map<std::string, Clock::time_point> at_;  // when
  std::map<proto::NodeId, base::Status> ended_;
  std::function<void()> on_up_ = [] {};
};

// Where a host may not be reached.
class SpawnerFailures : public SpawnerConformance {};

}  // namespace regroup::agent
