// What is read before a job on this host is resolved.
#include "launcher/job/inventory.h"

#include <gmock/gmock.h>

#include <cstdlib>

namespace regroup::job {
namespace {

using testing::HasSubstr;

alloc::Allocation two_cores() { return {1, {{"here", 2, {0, 1}}}}; }

spec::JobSpec running(const std::string& program, const std::string& wdir = "") {
  spec::JobSpec spec;
  spec.environment = {{"PATH", "/usr/bin:/bin"}};
  spec::AppRequest& app = spec.apps.emplace_back();
  app.command = {program};
  app.wdir = wdir;
  app.environment = spec.environment;
  return spec;
}

Refusal refusal_of(const spec::JobSpec& spec) {
  const auto inventory = read_inventory(spec, two_cores());
  EXPECT_TRUE(inventory.ok()) << inventory.status().message();
  const auto* refusal = std::get_if<Refusal>(&inventory->programs.at(0));
  return refusal != nullptr ? *refusal : Refusal{0, "none"};
}

TEST(Inventory, SaysWhyAProgramCannotBeRunAndWithWhichStatus) {
  EXPECT_EQ(refusal_of(running("sh")).exit_status, 0);
  EXPECT_EQ(refusal_of(running("no-such-program")).exit_status, 66);
  EXPECT_EQ(refusal_of(running("/no/such/program")).exit_status, 183);
  EXPECT_EQ(refusal_of(running("sh", "/no/such/folder")).exit_status, 181);
  spec::JobSpec hydra = running("no-such-program");
  hydra.compat = spec::Compat::kMpich;
  EXPECT_EQ(refusal_of(hydra).exit_status, 255);
}

TEST(Inventory, NamesTheCommandThatAMissingProgramResembles) {
  spec::JobSpec spec = running("statsu");
  spec.like_command = "status";
  EXPECT_THAT(refusal_of(spec).message, HasSubstr("did you mean regroup status?"));
}

TEST(Inventory, WithoutALaunchADescriptionTakesThePlaceOfThisMachine) {
  spec::JobSpec spec = running("sh");
  const std::string machine = "package:2 [numa] core:4 pu:1";
  ::setenv("HWLOC_SYNTHETIC", machine.c_str(), 1);  // hwloc reads it
  spec.environment["HWLOC_SYNTHETIC"] = machine;
  spec.do_not_launch = true;
  spec.display.map = true;
  auto inventory = read_inventory(spec, two_cores());
  ASSERT_TRUE(inventory.ok()) << inventory.status().message();
  EXPECT_EQ(inventory->allocation.slots(), 8U);
  ASSERT_TRUE(inventory->hosts.at(0).inventory.ok());
  EXPECT_EQ(inventory->hosts[0].inventory->cpus.size(), 8U);
  spec.do_not_launch = false;
  inventory = read_inventory(spec, two_cores());
  ASSERT_TRUE(inventory.ok()) << inventory.status().message();
  EXPECT_EQ(inventory->allocation.slots(), 2U);
  EXPECT_THAT(inventory->hosts.at(0).inventory.status().message(),
              HasSubstr("describes another machine"));
  ::unsetenv("HWLOC_SYNTHETIC");
}

TEST(Inventory, OfHostsThatComeLaterLeavesProgramsToThem) {
  const Inventory inventory = without_hosts(running("no-such-program"));
  EXPECT_TRUE(inventory.allocation.hosts.empty());
  ASSERT_TRUE(std::holds_alternative<process::App>(inventory.programs.at(0)));
  EXPECT_EQ(std::get<process::App>(inventory.programs[0]).path, "");
}

}  // namespace
}  // namespace regroup::job
