// Timers that have expired when they are set anew or called off.
#include "launcher/process/due.h"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <thread>
#include <vector>

namespace regroup::process {
namespace {

using namespace std::chrono_literals;
using boost::asio::steady_timer;

// What the handlers of a timer are given, and whether it was due then, when `change` is made of it
// by another timer that has expired at the same time.
struct Told {
  bool error, due;
};
template <class Change>
std::vector<Told> told_after(const Change& change) {
  boost::asio::io_context loop;
  steady_timer first(loop, 1ms);
  steady_timer second(loop, 2ms);
  std::vector<Told> told;
  const auto handler = [&](const boost::system::error_code& error) {
    told.push_back({error.failed(), is_due(second)});
  };
  first.async_wait([&](const boost::system::error_code&) { change(second); });
  second.async_wait(handler);
  std::this_thread::sleep_for(5ms);
  loop.run();
  return told;
}

TEST(Due, ATimerThatExpiresIsDue) {
  const std::vector<Told> told = told_after([](steady_timer&) {});
  ASSERT_EQ(told.size(), 1U);
  EXPECT_FALSE(told[0].error);
  EXPECT_TRUE(told[0].due);
}

// Why there is is_due() at all.
TEST(Due, ACancelDoesNotStopAnExpiredTimer) {
  const std::vector<Told> told = told_after([](steady_timer& timer) { timer.cancel(); });
  ASSERT_EQ(told.size(), 1U);
  EXPECT_FALSE(told[0].error);
  EXPECT_TRUE(told[0].due);
}

TEST(Due, ACalledOffTimerIsNotDue) {
  const std::vector<Told> told = told_after([](steady_timer& timer) { call_off(timer); });
  ASSERT_EQ(told.size(), 1U);
  EXPECT_FALSE(told[0].due);
}

TEST(Due, ATimerThatIsSetAgainIsNotDue) {
  const std::vector<Told> told = told_after([](steady_timer& timer) { timer.expires_after(1h); });
  ASSERT_EQ(told.size(), 1U);
  EXPECT_FALSE(told[0].due);
}

}  // namespace
}  // namespace regroup::process
