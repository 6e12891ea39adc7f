// A member with another declaration is refused, with the name of the difference.
#include "membership/declaration.h"

#include <gtest/gtest.h>

namespace regroup::membership {
namespace {

std::string refusal(const std::string& its, const std::string& first) {
  std::string warning;
  return check_declaration({.member = 1, .model = its}, {.member = 0, .model = first}, false,
                           &warning)
      .message();
}

TEST(Declaration, AnotherModelIsRefusedByTheNamesOfItsTensors) {
  const std::string first =
      "m 1\x1e"
      "a\tfloat32 [4]\x1e"
      "b\tint8 [2, 3]\x1e"
      "c\tint8 []";
  EXPECT_EQ(refusal("m 2\x1e"
                    "a\tfloat32 [5]\x1e"
                    "d\n\tbool [1]\x1e"
                    "c\tint8 []",
                    first),
            "member 1 is refused: its model differs from that of member 0: tensor a is float32 [5] "
            "in member "
            "1, float32 [4] in member 0; tensor d\\n, bool [1], is in member 1 only; tensor b, "
            "int8 [2, 3], "
            "is in member 0 only");
  EXPECT_EQ(refusal("m 1", first), "");  // the list is not compared
}

}  // namespace
}  // namespace regroup::membership
