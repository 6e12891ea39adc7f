// One timer of a kind per host: the newest one fires, once.
#include "launcher/job/host_timers.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>

namespace regroup::job {
namespace {

using Kind = HostTimers::Kind;
constexpr std::chrono::milliseconds kSoon(1);

TEST(HostTimers, FireOnceForEachKindAndHost) {
  boost::asio::io_context loop(1);
  HostTimers timers(loop);
  std::string fired;
  timers.set(Kind::kDrain, 0, 1 * kSoon, [&] { fired += "a"; });
  timers.set(Kind::kReclaim, 0, 20 * kSoon, [&] { fired += "b"; });
  timers.set(Kind::kDrain, 1, 40 * kSoon, [&] { fired += "c"; });
  loop.run();
  EXPECT_EQ(fired, "abc");
}

TEST(HostTimers, AreReplacedAndCancelled) {
  boost::asio::io_context loop(1);
  HostTimers timers(loop);
  std::string fired;
  timers.set(Kind::kDrain, 0, {}, [&] { fired += "old"; });
  timers.set(Kind::kDrain, 0, kSoon, [&] { fired += "new"; });
  timers.set(Kind::kRestart, 0, {}, [&] { fired += "cancelled"; });
  timers.cancel(Kind::kRestart, 0);
  loop.run();
  EXPECT_EQ(fired, "new");
}

// All three have expired when the loop begins, so it queues all handlers before it calls one.
TEST(HostTimers, AreReplacedAndCancelledEvenIfTheirHandlersAreQueued) {
  boost::asio::io_context loop(1);
  HostTimers timers(loop);
  std::string fired;
  timers.set(Kind::kReclaim, 0, {}, [&] {
    timers.set(Kind::kDrain, 0, kSoon, [&] { fired += "new"; });
    timers.cancel(Kind::kRestart, 0);
  });
  timers.set(Kind::kDrain, 0, {}, [&] { fired += "old"; });
  timers.set(Kind::kRestart, 0, {}, [&] { fired += "cancelled"; });
  loop.run();
  EXPECT_EQ(fired, "new");
}

TEST(HostTimers, MayBeSetAgainByTheFunctionThatTheyCall) {
  boost::asio::io_context loop(1);
  HostTimers timers(loop);
  int calls = 0;
  std::function<void()> poll = [&] {
    if (++calls < 3) timers.set(Kind::kDrain, 7, {}, poll);
  };
  poll();
  loop.run();
  EXPECT_EQ(calls, 3);
}

}  // namespace
}  // namespace regroup::job
