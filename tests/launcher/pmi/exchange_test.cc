// Parts of several hosts become one answer, in the order of the hosts, once.
#include "launcher/pmi/exchange.h"

#include <gtest/gtest.h>

namespace regroup::pmi {
namespace {

Contribute part(const std::string& key, std::uint32_t host, char byte,
                std::vector<std::uint32_t> hosts = {0, 2, 5}) {
  return {key, std::move(hosts), host, {static_cast<std::byte>(byte)}};
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
  EXPECT_EQ(exchange.held(1), 0U);
  EXPECT_FALSE(exchange.add(part("f", 2, 'b')));
  EXPECT_EQ(text(*exchange.add(part("f", 5, 'c'))), "abc");
}

TEST(Exchange, AHostThatGuessesTheKeyDoesNotDecideWhichHostsTakePart) {
  Exchange exchange;
  EXPECT_FALSE(exchange.add(part("f", 5, 'z', {0, 5})));
  EXPECT_FALSE(exchange.add(part("f", 5, 'z', {5, 2, 0})));
  EXPECT_FALSE(exchange.add(part("f", 0, 'a', {0, 2})));
  EXPECT_EQ(text(*exchange.add(part("f", 2, 'b', {0, 2}))), "ab");
  EXPECT_GT(exchange.held(5), 0U);
  EXPECT_EQ(exchange.held(0) + exchange.held(2), 0U);
}

TEST(Exchange, WhatAHostHoldsIsCountedUntilItIsCompleteOrForgotten) {
  Exchange exchange;
  for (int i = 0; i < 100; ++i)
    EXPECT_FALSE(exchange.add(part("guess " + std::to_string(i), 5, 'z')));
  const std::size_t most = exchange.held(5);
  EXPECT_GE(most, 100 * (sizeof "guess" + 3 * sizeof(std::uint32_t)));
  EXPECT_FALSE(exchange.add(part("guess 0", 0, 'a')));
  EXPECT_TRUE(exchange.add(part("guess 0", 2, 'b')));
  EXPECT_LT(exchange.held(5), most);
  EXPECT_EQ(exchange.held(0), 0U);
  EXPECT_FALSE(exchange.add(part("guess 1", 0, 'a')));
  EXPECT_FALSE(exchange.awaited(5));
  exchange.forget(5);
  EXPECT_EQ(exchange.held(5), 0U);
  EXPECT_TRUE(exchange.awaited(5));  // the first has come, and the last
  exchange.forget(0);
  EXPECT_FALSE(exchange.awaited(5));
  EXPECT_EQ(exchange.held(0), 0U);
}

TEST(Exchange, TellsWhoseTheLargestPartIs) {
  Exchange exchange;
  EXPECT_FALSE(exchange.add({"f", {0, 1}, 1, std::vector<std::byte>(100)}));
  const auto size = exchange.size_with({"f", {0, 1}, 0, std::vector<std::byte>(7)});
  EXPECT_EQ(size.bytes, 107U);
  EXPECT_EQ(size.largest, 100U);
  EXPECT_EQ(size.host, 1U);
  EXPECT_EQ(exchange.size_with({"g", {0, 1}, 0, std::vector<std::byte>(7)}).bytes, 7U);
}

}  // namespace
}  // namespace regroup::pmi
