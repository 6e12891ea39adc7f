// Parts of several hosts become one answer, in the order of the hosts, once.
#include "launcher/pmi/exchange.h"

#include <gtest/gtest.h>

namespace regroup::pmi {
namespace {

Contribute part(const std::string& key, std::uint32_t host, char byte) {
  return {key, {0, 2, 5}, host, {static_cast<std::byte>(byte)}};
}

std::string text(const Gathered& gathered) {
  return {reinterpret_cast<const char*>(gathered.data.data()), gathered.data.size()};
}

TEST(Exchange, TheLastPartCompletesItInTheOrderOfTheHosts) {
  Exchange exchange;
  EXPECT_FALSE(exchange.add(part("f #1", 5, 'c')));
  EXPECT_FALSE(exchange.add(part("f #2", 0, 'x')));
  EXPECT_FALSE(exchange.add(part("f #1", 0, 'a')));
  const auto gathered = exchange.add(part("f #1", 2, 'b'));
  ASSERT_TRUE(gathered);
  EXPECT_EQ(gathered->key, "f #1");
  EXPECT_EQ(text(*gathered), "abc");
  EXPECT_FALSE(exchange.add(part("f #1", 2, 'b')));  // begins anew
}

TEST(Exchange, ASecondPartAndStrangersDoNotCount) {
  Exchange exchange;
  EXPECT_FALSE(exchange.add(part("f", 0, 'a')));
  EXPECT_FALSE(exchange.add(part("f", 0, 'z')));
  EXPECT_FALSE(exchange.add(part("f", 1, 'z')));
  EXPECT_FALSE(exchange.add(part("f", 2, 'b')));
  EXPECT_EQ(text(*exchange.add(part("f", 5, 'c'))), "abc");
}

}  // namespace
}  // namespace regroup::pmi
