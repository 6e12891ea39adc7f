// Which signals of several are wishes of their own.
#include "launcher/process/signals.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

namespace regroup::process {
namespace {

using std::chrono::milliseconds;

base::TimePoint at(int ms) { return base::TimePoint() + milliseconds(10'000 + ms); }

TEST(StopRequests, ASignalRepeatedWithinASecondIsOneRequest) {
  StopRequests wishes;
  EXPECT_FALSE(wishes.repeats(SIGTERM, false, at(0)));
  EXPECT_TRUE(wishes.repeats(SIGTERM, false, at(1)));
  EXPECT_TRUE(wishes.repeats(SIGTERM, false, at(999)));
  EXPECT_FALSE(wishes.repeats(SIGTERM, false, at(1000)));
  EXPECT_TRUE(wishes.repeats(SIGTERM, false, at(1700)));
  EXPECT_FALSE(wishes.repeats(SIGTERM, false, at(2100)));
}

TEST(StopRequests, AnotherSignalIsAnotherRequestUnlessASessionEnds) {
  StopRequests wishes;
  EXPECT_FALSE(wishes.repeats(SIGTERM, false, at(0)));
  EXPECT_FALSE(wishes.repeats(SIGINT, false, at(1)));
  EXPECT_TRUE(wishes.repeats(SIGTERM, false, at(2)));

  StopRequests session;
  EXPECT_FALSE(session.repeats(SIGHUP, false, at(0)));
  EXPECT_TRUE(session.repeats(SIGTERM, false, at(1)));
}

TEST(StopRequests, AKeyPressedTwiceIsTwoRequestsAndAForwardedSignalIsNone) {
  StopRequests wishes;
  EXPECT_FALSE(wishes.repeats(SIGINT, true, at(0)));
  EXPECT_TRUE(wishes.repeats(SIGINT, false, at(2)));  // passed on
  EXPECT_FALSE(wishes.repeats(SIGINT, true, at(300)));
  EXPECT_TRUE(wishes.repeats(SIGINT, false, at(302)));

  StopRequests passed_on_first;
  EXPECT_FALSE(passed_on_first.repeats(SIGINT, false, at(0)));
  EXPECT_TRUE(passed_on_first.repeats(SIGINT, true, at(1)));
  EXPECT_FALSE(passed_on_first.repeats(SIGINT, true, at(200)));
}

TEST(SignalReader, ASignalOfAProcessIsNotByKey) {
  sigset_t set, before;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGUSR1);
  ::sigprocmask(SIG_BLOCK, &set, &before);
  boost::asio::io_context loop{1};
  std::vector<int> got;
  SignalReader reader(loop, [&](int signal) {
    got.push_back(signal);
    EXPECT_FALSE(reader.by_key());
    loop.stop();
  });
  ASSERT_TRUE(reader.start({SIGUSR1}).ok());
  ::kill(::getpid(), SIGUSR1);
  loop.run_for(std::chrono::seconds(20));
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  EXPECT_EQ(got, std::vector<int>{SIGUSR1});
}

}  // namespace
}  // namespace regroup::process
