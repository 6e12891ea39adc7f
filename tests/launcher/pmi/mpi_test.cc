// The agent's side with a real regroup-pmi: each open() is answered, whatever becomes of it.
#include "launcher/pmi/mpi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

namespace regroup::pmi {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using namespace std::chrono_literals;

struct MpiTest : testing::Test {
  boost::asio::io_context loop;
  std::string folder =
      std::filesystem::path(testing::TempDir()) / ("mpi_test-" + std::to_string(::getpid()));
  std::vector<std::string> said;
  std::unique_ptr<Mpi> mpi;
  std::vector<process::Extras> extras;
  bool answered = false;
  std::vector<Fetched> fetched;

  MpiTest() { std::filesystem::create_directories(folder); }
  ~MpiTest() override {
    mpi.reset();
    while (::wait(nullptr) > 0) {
    }
  }

  void start(std::optional<base::Duration> limit = {}) {
    MpiEvents events;
    events.said = [this](const std::string& text) { said.push_back(text); };
    events.exchange = [this](const Message& message) {
      fetched.push_back(std::get<Fetched>(message));
    };
    HelperOptions options{REGROUP_PMI, "job", folder, "libno-such-pmix.so"};
    options.answer_limit = limit.value_or(options.answer_limit);
    mpi = std::make_unique<Mpi>(loop, std::move(options), process::App(), std::move(events));
  }

  void open(const OpenSpace& space) {
    mpi->open(space, [this](std::vector<process::Extras> got) {
      extras = std::move(got);
      answered = true;
    });
    const auto end = std::chrono::steady_clock::now() + 30s;
    while (!answered && std::chrono::steady_clock::now() < end) loop.run_one_for(100ms);
  }
};

TEST_F(MpiTest, ASpaceLargerThanAPacketIsOpened) {
  start();
  open({0, 2, false, {2}, 0, {{std::string(300 << 10, '0'), ""}}});
  ASSERT_EQ(extras.size(), 2U);
  EXPECT_EQ(extras[1].environment["PMI_RANK"], "1");
  EXPECT_TRUE(extras[1].inherited.valid());
}

TEST_F(MpiTest, OneLargerThanAMessageIsAnsweredAtOnce) {
  start();
  open({0, 2, false, {2}, 0, {{std::string(20 << 20, '0'), ""}}});
  EXPECT_EQ(extras.size(), 2U);
  EXPECT_THAT(said,
              testing::Contains(HasSubstr("2 members do not fit into a message to regroup-pmi")));
}

TEST_F(MpiTest, AHelperThatIsStoppedIsEndedAndNoOther) {
  start(3s);
  open({0, 1, false, {1}, 0, {}});
  said.clear();
  loop.run_for(4s);
  EXPECT_THAT(said, ElementsAre());
  ASSERT_EQ(::kill(mpi->helper(), SIGSTOP), 0);
  const auto end = std::chrono::steady_clock::now() + 30s;
  while (said.empty() && std::chrono::steady_clock::now() < end) loop.run_one_for(100ms);
  EXPECT_THAT(said,
              ElementsAre(HasSubstr("did not answer for 3 s and is killed: MPI programs get no")));
  int status = 0;
  EXPECT_EQ(::waitpid(mpi->helper(), &status, 0), mpi->helper());
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

TEST_F(MpiTest, CallsAboutNamesAreAnsweredWithoutAHelper) {
  start();
  open({0, 1, false, {1}, 0, {}});
  ASSERT_EQ(::kill(mpi->helper(), SIGSTOP), 0);
  mpi->tell(NameCall{7, 1, {0, 1}, NameOperation::kLookup, {}});
  mpi->tell(Fetch{8, 2, {0, 0}});
  EXPECT_TRUE(fetched.empty());
  ASSERT_EQ(::kill(mpi->helper(), SIGKILL), 0);
  const auto end = std::chrono::steady_clock::now() + 60s;
  while (fetched.size() < 2 && std::chrono::steady_clock::now() < end) loop.run_one_for(100ms);
  mpi->tell(NameCall{9, 1, {0, 1}, NameOperation::kLookup, {}});
  std::vector<std::uint64_t> requests;
  for (const Fetched& answer : fetched) {
    requests.push_back(answer.request);
    EXPECT_EQ(answer.status, kPmixNotFound);
  }
  EXPECT_THAT(requests, ElementsAre(7, 8, 9));
}

}  // namespace
}  // namespace regroup::pmi
