// Readers that die, hang, or leave without a word, in the process apart that they run in.
#include "launcher/topology/read_in_child.h"
#include "base/status.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "launcher/topology/load_machine.h"

namespace regroup::topology {
namespace {

using testing::HasSubstr;
using Answer = base::Result<std::string>;

constexpr const char* kFile = "machine.xml";

bool no_child_is_left() { return ::waitpid(-1, nullptr, WNOHANG) < 0; }

TEST(ReadInChild, AnAnswerComesBackWhole) {
  const std::string large(std::size_t{3} << 20, 'x');
  EXPECT_EQ(*read_in_child(kFile, "r", [&] { return Answer(large); }), large);
  EXPECT_EQ(*read_in_child(kFile, "r", [] { return Answer(std::string()); }), "");
  const auto refused = read_in_child(kFile, "r", [] { return Answer(base::not_found("f:3: no")); });
  EXPECT_EQ(refused.code(), base::Code::kNotFound);
  EXPECT_EQ(refused.status().message(), "f:3: no");
  EXPECT_TRUE(no_child_is_left());
}

TEST(ReadInChild, AReaderThatDiesIsAnErrorOfItsFile) {
  for (const int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGKILL}) {
    const auto died = read_in_child(kFile, "libhwloc", [signal]() -> Answer {
      ::raise(signal);
      return std::string("alive");
    });
    EXPECT_EQ(died.code(), base::Code::kInvalidArgument);
    EXPECT_THAT(died.status().message(), HasSubstr("machine.xml: libhwloc was killed by SIG"));
  }
  const auto left = read_in_child(kFile, "libhwloc", []() -> Answer { ::_exit(3); });
  EXPECT_THAT(left.status().message(),
              HasSubstr("machine.xml: libhwloc ended with status 3 while reading it"));
  EXPECT_TRUE(no_child_is_left());
}

TEST(ReadInChild, AnAnswerThatIsTooLargeIsNamedAndItsReaderEnded) {
  const std::string large((std::size_t{64} << 20) + 1, 'x');
  const auto answer = read_in_child(kFile, "libhwloc", [&] { return Answer(large); });
  EXPECT_EQ(answer.code(), base::Code::kInvalidArgument);
  EXPECT_EQ(answer.status().message(), "machine.xml: the answer of libhwloc is larger than 64 MiB");
  EXPECT_TRUE(no_child_is_left());
}

// As the launcher has them.
TEST(ReadInChild, SignalsThatAreBlockedOrIgnoredHereEndTheReaderAllTheSame) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::sigprocmask(SIG_BLOCK, &all, &before);
  const auto was = ::signal(SIGSEGV, SIG_IGN);
  const auto died = read_in_child(kFile, "r", []() -> Answer {
    ::raise(SIGSEGV);
    return std::string("alive");
  });
  ::signal(SIGSEGV, was);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  EXPECT_THAT(died.status().message(), HasSubstr("was killed by SIGSEGV"));
}

TEST(ReadInChild, AReaderThatHangsIsKilled) {
  const auto hung = read_in_child(
      kFile, "libhwloc",
      []() -> Answer {
        for (;;) ::pause();
      },
      std::chrono::milliseconds(50));
  EXPECT_EQ(hung.code(), base::Code::kDeadlineExceeded);
  EXPECT_EQ(hung.status().message(), "machine.xml: libhwloc did not finish within 0.05 s");
  EXPECT_TRUE(no_child_is_left());
}

TEST(ReadInChild, WhatAReaderPrintsIsNotTheAnswer) {
  testing::internal::CaptureStdout();
  EXPECT_EQ(*read_in_child(kFile, "r",
                           [] {
                             (void)!::write(STDOUT_FILENO, "noise\n", 6);
                             return Answer(std::string("answer"));
                           }),
            "answer");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
}

// A pipe without a writer reads as empty; none of them holds the launcher.
TEST(ReadInChild, FilesThatAreNoneAreRefused) {
  EXPECT_EQ(load_machine("/nonexistent").code(), base::Code::kNotFound);
  EXPECT_FALSE(load_machine("/dev/null").ok());
}

}  // namespace
}  // namespace regroup::topology
