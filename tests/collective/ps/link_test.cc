// Addresses of gateways as text.
#include <gtest/gtest.h>

#include <string>

#include "tests/collective/ps/reached.h"

namespace regroup::collective::ps::testing::links {
namespace {

using base::Code;

TEST(PsLink, IsReadAsItIsWritten) {
  GatewayAddress address{.host = "node1", .address = "fe80::1", .port = 4711};
  address.token.fill(std::byte{0x0f});
  const std::string text = to_text(address);
  EXPECT_EQ(text, "tcp,node1,fe80::1,4711,0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f");
  const auto read = parse_gateway_address(text);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(to_text(*read), text);
  for (const char* const wrong :
       {"tcp,", "tcp,n,1.2.3.4,0,0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f", "tcp,n,1.2.3.4,4711,0f",
        "tcp,n,1.2.3.4,4711,xf0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f", "tcp,n,1.2.3.4,4711"}) {
    const auto refused = parse_gateway_address(wrong);
    EXPECT_EQ(refused.code(), Code::kInvalidArgument) << wrong;
    EXPECT_EQ(refused.status().message().find("0f0f"), std::string::npos) << "tells the token";
  }
}

}  // namespace
}  // namespace regroup::collective::ps::testing::links
