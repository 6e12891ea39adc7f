// Shows that the silence of ThreadSanitizer means something: it is silent about the communicator as
// shipped and reports the data race when the store that publishes data is no longer a release.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <string>

namespace {

struct Outcome {
  int status = -1;
  std::string output;
};

// `program` of build/bin, which CTest puts into PATH.
Outcome run(const std::string& program) {
  Outcome outcome;
  const std::string command =
      "TSAN_OPTIONS='halt_on_error=1 exitcode=66' timeout 100 setarch -R " + program + " 2>&1";
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return outcome;
  for (int c = ::fgetc(pipe); c != EOF; c = ::fgetc(pipe)) outcome.output += static_cast<char>(c);
  const int status = ::pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

TEST(Race, FindsNoneInTheShippedCode) {
  const Outcome outcome = run("race_probe");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_EQ(outcome.output, "4 of 4 ranks are done\n");
}

TEST(Race, ARelaxedPublishIsReported) {
  const Outcome outcome = run("race_mutant");
  EXPECT_EQ(outcome.status, 66) << outcome.output;
  EXPECT_THAT(outcome.output, ::testing::HasSubstr("WARNING: ThreadSanitizer: data race"));
}

}  // namespace
