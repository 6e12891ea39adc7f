// `regroup place`: counts that no job has are refused before anything is reserved for them.
#include "launcher/placement/place_command.h"

#include <gmock/gmock.h>

namespace regroup::placement {
namespace {

using testing::HasSubstr;

std::string refusal(std::vector<std::string> words) {
  words.insert(words.begin(), {"--machine", "m.topo"});
  const auto parsed = parse_place_command(words);
  return parsed.ok() ? "" : parsed.status().message();
}

TEST(PlaceCommand, RefusesCountsThatNoJobHas) {
  EXPECT_EQ(refusal({"-np", "65536"}), "");
  EXPECT_THAT(refusal({"-np", "65537"}), HasSubstr("expected at most 65536"));
  EXPECT_THAT(refusal({"-np", "4294967295"}), HasSubstr("expected at most 65536"));
  EXPECT_THAT(refusal({"--hosts", "4000000000"}), HasSubstr("expected at most 131072"));
  EXPECT_THAT(refusal({"--ps", "4000000000"}), HasSubstr("expected at most 65536"));
  EXPECT_THAT(refusal({"-a", "4000000000"}), HasSubstr("expected at most 65536"));
  EXPECT_THAT(refusal({"-np", "32769", "-a", "2"}), "65538 ranks: expected at most 65536");
  EXPECT_THAT(refusal({"-np", "65536", "--ps", "1"}), "65537 ranks: expected at most 65536");
}

}  // namespace
}  // namespace regroup::placement
