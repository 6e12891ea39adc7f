// regroup::ps::join() and an agent that does not answer.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/fd.h"
#include "base/unix_address.h"
#include "regroup/ps.h"

namespace regroup::elastic {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

class PsJoin : public testing::Test {
 protected:
  PsJoin() {
    std::string folder = std::filesystem::temp_directory_path() / "ps-join-XXXXXX";
    folder_ = ::mkdtemp(folder.data());
    ::setenv("REGROUP_PS", path().c_str(), 1);
  }
  ~PsJoin() override {
    ::unsetenv("REGROUP_PS");
    std::filesystem::remove_all(folder_);
  }
  [[nodiscard]] std::string path() const { return folder_ / "ps"; }

 private:
  std::filesystem::path folder_;
};

TEST_F(PsJoin, AnAgentThatAcceptsNoConnectionIsADeadline) {
  const auto address = base::unix_address(path()).value();
  const base::Fd agent(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(agent.get(), address.get(), address.size), 0);
  ASSERT_EQ(::listen(agent.get(), 0), 0);
  const base::Fd first(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::connect(first.get(), address.get(), address.size), 0);  // the backlog is full
  const auto refused = ps::join(20ms);
  EXPECT_EQ(refused.code(), Code::kDeadlineExceeded);
  EXPECT_EQ(refused.status().message(),
            "ps::join: the agent at " + path() + " has not accepted a connection in time");
}

TEST_F(PsJoin, AnAgentThatSaysNothingIsADeadline) {
  const auto address = base::unix_address(path()).value();
  const base::Fd agent(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(agent.get(), address.get(), address.size), 0);
  ASSERT_EQ(::listen(agent.get(), 5), 0);
  EXPECT_EQ(ps::join(20ms).code(), Code::kDeadlineExceeded);
}

TEST_F(PsJoin, ServersOfAnotherHostAreConnectedTo) {
  ::setenv("REGROUP_PS", "tcp,node1,127.0.0.1,1,000102030405060708090a0b0c0d0e0f", 1);
  const auto refused = ps::join(20s);
  EXPECT_EQ(refused.code(), Code::kUnavailable);
  EXPECT_EQ(refused.status().message(),
            "parameter server on host node1: connect(127.0.0.1 port 1): Connection refused");
  ::setenv("REGROUP_PS", "tcp,node1", 1);
  EXPECT_EQ(ps::join(20s).code(), Code::kInvalidArgument);
}

TEST_F(PsJoin, SeveralStoresAreAList) {
  const std::string first = "tcp,node1,127.0.0.1,1,000102030405060708090a0b0c0d0e0f";
  const std::string second = "tcp,node2,127.0.0.1,1,000102030405060708090a0b0c0d0e0f";
  ::setenv("REGROUP_PS", (first + ";" + second).c_str(), 1);
  const base::Result<std::unique_ptr<ps::Client>> joined[] = {
      ps::join(20s), ps::join({.mode = ps::Mode::kSync, .leaves = 4}, 20s)};
  for (const auto& refused : joined) {
    EXPECT_EQ(refused.code(), Code::kUnavailable);
    EXPECT_EQ(refused.status().message(),
              "store 0 of 2 on host node1: parameter server on host node1: connect(127.0.0.1 port "
              "1): Connection refused");
  }
  // The last element says how many replicas there are: one store may be lost, and is waited for.
  ::setenv("REGROUP_PS", (first + ";" + second + ";replicas=2").c_str(), 1);
  const auto late = ps::join(1s);
  EXPECT_EQ(late.code(), Code::kDeadlineExceeded);
  EXPECT_TRUE(late.status().message().ends_with("lost before the deadline"))
      << late.status().message();
  for (const std::string& wrong : {std::string("3"), std::string("0")}) {
    ::setenv("REGROUP_PS", (first + ";" + second + ";replicas=" + wrong).c_str(), 1);
    EXPECT_EQ(ps::join(20s).status().message(),
              "client: expected 1 to 2 replicas in 2 stores, got " + wrong);
  }
  ::setenv("REGROUP_PS", (first + ";" + second + ";replicas=two").c_str(), 1);
  EXPECT_EQ(ps::join(20s).status().message(),
            "REGROUP_PS: expected replicas=N, got \"replicas=two\"");
  for (const std::string& rest : {std::string(), std::string("here")}) {
    ::setenv("REGROUP_PS", (first + ";" + rest).c_str(), 1);
    EXPECT_EQ(ps::join(20s).status().message(),
              "REGROUP_PS: expected sockets and addresses of parameter servers, separated by "
              "semicolons, got \"" +
                  rest + "\"");
  }
}

}  // namespace
}  // namespace regroup::elastic
