// The coordinator's process when its link to the agent breaks.
#include "launcher/cmd/elastic_coordinator.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <cstdlib>
#include <filesystem>

namespace regroup::cmd {
namespace {

TEST(ElasticCoordinator, AsksForARestartWhenTheLinkIsLost) {
  char name[] = "/tmp/coordinator-XXXXXX";
  const std::string folder = ::mkdtemp(name);
  std::array<int, 2> fds{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()), 0);
  core::Fd coordinator(fds[0]);
  core::Fd(fds[1]).reset();
  const CoordinatorOptions options{.policy = {.min = 1, .max = 1, .target = 1, .slots = 1},
                                   .job = {.id = "job"},
                                   .files = {folder},
                                   .quiet = true};
  EXPECT_EQ(run_coordinator(options, std::move(coordinator), 1), 1);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace regroup::cmd
