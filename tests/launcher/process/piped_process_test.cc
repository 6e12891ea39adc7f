// The exit status of a process in whose process somebody else reaps all children.
#include "launcher/process/piped_process.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <optional>

#include "launcher/process/reaped_child.h"
#include "tests/launcher/transport/net_test.h"

namespace regroup::process {
namespace {

SpawnSpec shell(const std::string& script) {
  SpawnSpec spec;
  spec.path = "/bin/sh";
  spec.argv = {"sh", "-c", script};
  return spec;
}

class PipedProcessTest : public testing::Test {
 protected:
  std::shared_ptr<PipedProcess> start(const std::string& script) {
    auto process =
        PipedProcess::start(loop_, shell(script),
                            {.line = [this](std::string_view line, bool) { line_ = line; },
                             .ended = [this](int status) { status_ = status; }});
    EXPECT_TRUE(process.ok()) << process.status().to_string();
    return *process;
  }
  int wait_end() {
    EXPECT_TRUE(transport::run_until(loop_, [&] { return status_.has_value(); }));
    return status_.value_or(-1);
  }

  boost::asio::io_context loop_;
  std::string line_;
  std::optional<int> status_;
};

TEST_F(PipedProcessTest, ReportsItsEnd) {
  const auto process = start("echo hello; exit 3");
  const int status = wait_end();
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 3);
  EXPECT_EQ(line_, "hello");
}

// As ProcessTable does, which has members of its own to wait for.
TEST_F(PipedProcessTest, ReportsAnEndThatAnotherThreadReaped) {
  for (const auto& [script, wanted] :
       {std::pair{"echo hello; exit 3", 3 << 8}, {"kill -TERM $$", SIGTERM}}) {
    status_.reset();
    const auto process = start(script);
    int status = 0;
    const pid_t pid = ::waitpid(-1, &status, 0);
    ASSERT_GT(pid, 0);
    ReapedChild::record(pid, status);
    process->kill();  // its number is free: nobody is killed
    EXPECT_EQ(wait_end(), wanted) << script;
  }
  EXPECT_EQ(line_, "hello");
}

TEST(ReapedChildTest, KeepsTheStatusOfItsOwnChildWhenAPidIsReused) {
  const pid_t pid = 1'000'000'000;  // above any
  ReapedChild before(pid);
  ReapedChild::record(pid, 7);
  {
    const ReapedChild after(pid);
    ReapedChild::record(pid, 9);
    EXPECT_EQ(after.status(), 9);
  }
  EXPECT_EQ(before.status(), 7);
  ReapedChild::record(pid, 11);
  EXPECT_EQ(before.status(), 7);
}

}  // namespace
}  // namespace regroup::process
