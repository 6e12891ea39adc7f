// A real file, real commands and a real server: notices, and what is said of sources that fail.
#include "launcher/notice/notice_watch.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/streambuf.hpp>
#include <boost/asio/write.hpp>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

namespace regroup::launcher {
namespace {

using boost::asio::ip::tcp;
using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

class WatchTest : public testing::Test {
 protected:
  WatchTest() { std::filesystem::create_directories(folder_); }
  ~WatchTest() override { std::filesystem::remove_all(folder_); }

  NoticeWatch& watch(NoticeRequest sources, const std::function<void(const std::string&)>& over = {},
                     const std::vector<std::string>& suspended_by = {}) {
    sources.every = milliseconds(10);
    watch_.emplace(
        loop_, std::move(sources), "n1", Environment{{"PATH", "/usr/bin:/bin"}},
        NoticeWatch::Events{[this](const Notice& notice, const std::string& source) {
                              heard_.push_back(fmt::format("{} {}", kind_name(notice.kind), source));
                            },
                            [this](const std::string& text) { said_.push_back(text); }, over});
    watch_->start(suspended_by);
    return *watch_;
  }
  // False: it did not become true within ten seconds.
  template <class Condition>
  bool until(Condition condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition() && std::chrono::steady_clock::now() < deadline) loop_.run_one_for(milliseconds(50));
    return condition();
  }
  void write(const std::string& text) { std::ofstream(path_) << text; }

  const std::string folder_ = testing::TempDir() + "notice_watch-" + std::to_string(::getpid());
  const std::string path_ = folder_ + "/notice";
  boost::asio::io_context loop_{1};
  std::optional<NoticeWatch> watch_;
  std::vector<std::string> heard_, said_;
};

TEST_F(WatchTest, AFileThatComesIsANoticeOnce) {
  watch({.file = path_});
  loop_.run_for(milliseconds(50));
  EXPECT_TRUE(heard_.empty());
  write("shrink within=5 who=n2\n");  // another host's
  loop_.run_for(milliseconds(50));
  EXPECT_TRUE(heard_.empty());
  write("shrink within=5 who=n1,n2\n");
  ASSERT_TRUE(until([&] { return !heard_.empty(); }));
  loop_.run_for(milliseconds(50));
  EXPECT_THAT(heard_, ElementsAre("shrink --notice-file " + path_));
  EXPECT_TRUE(said_.empty());
}

TEST_F(WatchTest, ASuspensionEndsWhenTheFileSaysSoNoMore) {
  int over = 0;
  watch({.file = path_}, [&](const std::string&) { ++over; });
  write("suspend within=5 who=n1\n");
  ASSERT_TRUE(until([&] { return !heard_.empty(); }));
  write("suspend within=3 who=n1,n2\n");  // it lasts
  loop_.run_for(milliseconds(50));
  EXPECT_EQ(over, 0);
  write("suspend who=n2\n");
  ASSERT_TRUE(until([&] { return over == 1; }));
  write("suspend\n");
  ASSERT_TRUE(until([&] { return heard_.size() == 2; }));
  std::filesystem::remove(path_);
  ASSERT_TRUE(until([&] { return over == 2; }));
  write("kill\n");  // the last word
  ASSERT_TRUE(until([&] { return heard_.size() == 3; }));
  std::filesystem::remove(path_);
  loop_.run_for(milliseconds(50));
  EXPECT_EQ(over, 2);
}

TEST_F(WatchTest, ASuspensionOfWhichIsKnownIsOverOnceItsSourceSaysSo) {
  write("suspend who=n1\n");
  int over = 0;
  watch({.file = path_}, [&](const std::string&) { ++over; }, {"--notice-file " + path_});
  loop_.run_for(milliseconds(50));
  EXPECT_TRUE(heard_.empty());  // it is no news
  EXPECT_EQ(over, 0);
  write("rubbish");
  ASSERT_TRUE(until([&] { return !said_.empty(); }));
  EXPECT_EQ(over, 0);
  std::filesystem::remove(path_);
  ASSERT_TRUE(until([&] { return over == 1; }));
  write("suspend who=n1\n");
  ASSERT_TRUE(until([&] { return heard_.size() == 1; }));
}

TEST_F(WatchTest, ASuspensionIsOverWhenTheLastOfItsSourcesSaysSo) {
  const std::string other = path_ + "2";
  std::vector<std::string> over;
  write("suspend\n");
  std::ofstream(other) << "suspend\n";
  watch({.file = path_, .command = "cat " + other + " 2>/dev/null || true"},
        [&](const std::string& source) { over.push_back(source); });
  ASSERT_TRUE(until([&] { return heard_.size() == 2; }));
  std::filesystem::remove(path_);
  loop_.run_for(milliseconds(200));
  EXPECT_TRUE(over.empty());
  std::filesystem::remove(other);
  ASSERT_TRUE(until([&] { return !over.empty(); }));
  EXPECT_THAT(over, ElementsAre(HasSubstr("--notice-command cat")));
}

TEST_F(WatchTest, WhereNobodyAsksWhenItEndsASuspensionIsANoticeLikeOthers) {
  watch({.file = path_});
  write("suspend\n");
  ASSERT_TRUE(until([&] { return !heard_.empty(); }));
  write("kill\n");
  loop_.run_for(milliseconds(50));
  EXPECT_EQ(heard_.size(), 1U);
}

TEST_F(WatchTest, RubbishIsSaidOnceAndTheFileIsLookedAtAgain) {
  write("rubbish");
  watch({.file = path_});
  loop_.run_for(milliseconds(100));
  ASSERT_EQ(said_.size(), 1U);
  EXPECT_THAT(said_[0], HasSubstr("'rubbish' is no notice"));
  EXPECT_THAT(said_[0], HasSubstr("asked again every 0.01 s"));
  write("kill");
  EXPECT_TRUE(until([&] { return !heard_.empty(); }));
}

TEST_F(WatchTest, AFolderIsNoFile) {
  watch({.file = folder_});
  ASSERT_TRUE(until([&] { return !said_.empty(); }));
  EXPECT_THAT(said_[0], HasSubstr("it is no regular file"));
}

TEST_F(WatchTest, ACommandIsRunUntilItPrintsANotice) {
  watch({.command = "test -e " + path_ + " && echo suspend within=3 || exit 0"});
  loop_.run_for(milliseconds(100));
  EXPECT_TRUE(heard_.empty());
  write("");
  ASSERT_TRUE(until([&] { return !heard_.empty(); }));
  EXPECT_THAT(heard_[0], HasSubstr("suspend --notice-command test -e"));
}

TEST_F(WatchTest, ACommandThatFailsIsSaidAndRunAgain) {
  watch({.command = "test -e " + path_ + " && echo kill && exit 0; echo no such cloud >&2; exit 3"});
  ASSERT_TRUE(until([&] { return !said_.empty(); }));
  EXPECT_THAT(said_[0], HasSubstr("it ended with status 3: no such cloud"));
  loop_.run_for(milliseconds(100));
  EXPECT_EQ(said_.size(), 1U);
  write("");
  EXPECT_TRUE(until([&] { return !heard_.empty(); }));
}

TEST_F(WatchTest, ACommandThatHangsIsKilledWithItsChildren) {
  watch({.command = "sleep 4711; true"});
  ASSERT_TRUE(until([&] { return !said_.empty(); }));
  EXPECT_THAT(said_[0], HasSubstr("it did not end within 10 s, and was killed"));
  watch_->stop();
  const auto sleeps = [] {
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      std::ifstream file(entry.path() / "cmdline", std::ios::binary);
      const std::string line((std::istreambuf_iterator<char>(file)), {});
      if (line.find(std::string("sleep\0004711", 10)) != std::string::npos) return true;
    }
    return false;
  };
  EXPECT_TRUE(until([&] { return !sleeps(); }));  // a killed process takes a moment to go
}

// Answers each question with the next of its answers, the last one again and again.
class Server {
 public:
  explicit Server(std::vector<std::string> answers)
      : answers_(std::move(answers)), thread_([this] { serve(); }) {}
  ~Server() {
    over_ = true;
    boost::asio::io_context loop;
    tcp::socket socket(loop);
    boost::system::error_code ignored;
    socket.connect(acceptor_.local_endpoint(), ignored);
    thread_.join();
  }
  [[nodiscard]] std::string url(const std::string& target) const {
    return fmt::format("http://127.0.0.1:{}{}", acceptor_.local_endpoint().port(), target);
  }
  [[nodiscard]] std::vector<std::string> asked() {
    const std::lock_guard lock(mutex_);
    return asked_;
  }

 private:
  void serve() {
    for (std::size_t i = 0;; ++i) {
      tcp::socket socket(loop_);
      boost::system::error_code error;
      acceptor_.accept(socket, error);
      if (over_) return;
      boost::asio::streambuf question;
      boost::asio::read_until(socket, question, "\r\n\r\n", error);
      {
        const std::lock_guard lock(mutex_);
        asked_.emplace_back(boost::asio::buffers_begin(question.data()),
                            boost::asio::buffers_end(question.data()));
      }
      boost::asio::write(socket, boost::asio::buffer(answers_[std::min(i, answers_.size() - 1)]), error);
    }
  }

  boost::asio::io_context loop_;
  tcp::acceptor acceptor_{loop_, tcp::endpoint(boost::asio::ip::address_v4::loopback(), 0)};
  const std::vector<std::string> answers_;
  std::mutex mutex_;
  std::vector<std::string> asked_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

std::string answer(const std::string& status, const std::string& body) {
  return fmt::format("HTTP/1.1 {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}", status, body.size(),
                     body);
}

TEST_F(WatchTest, AnAddressIsAskedAsCloudsWantIt) {
  std::optional<Server> server;
  server.emplace(std::vector<std::string>{answer("404 Not Found", "<html>"), answer("200 OK", "FALSE"),
                                          answer("200 OK", "TRUE")});
  watch({.address = server->url("/computeMetadata/v1/instance/preempted")});
  ASSERT_TRUE(until([&] { return !heard_.empty(); }));
  EXPECT_TRUE(said_.empty()) << said_[0];
  watch_.reset();
}

TEST_F(WatchTest, AnAddressThatWantsATokenGetsOne) {
  Server server({answer("401 Unauthorized", ""), answer("200 OK", "AQA="),
                 answer("200 OK", R"({"action": "terminate", "time": "2026-11-22T20:32:00Z"})")});
  watch({.address = server.url("/latest/meta-data/spot/instance-action")});
  ASSERT_TRUE(until([&] { return !heard_.empty(); }));
  const std::vector<std::string> asked = server.asked();
  ASSERT_EQ(asked.size(), 3U);
  EXPECT_THAT(asked[0], HasSubstr("Metadata-Flavor: Google\r\n"));
  EXPECT_THAT(asked[1], HasSubstr("PUT /latest/api/token HTTP/1.1\r\n"));
  EXPECT_THAT(asked[2], HasSubstr("X-aws-ec2-metadata-token: AQA=\r\n"));
  EXPECT_TRUE(said_.empty());
}

TEST_F(WatchTest, WhatIsNoAnswerIsSaidAndSurvived) {
  Server server({"rubbish\r\n\r\n", answer("500 Oops", ""), answer("200 OK", std::string(100'000, 'x')),
                 answer("200 OK", "kill")});
  watch({.address = server.url("/")});
  ASSERT_TRUE(until([&] { return !heard_.empty(); }));
  ASSERT_EQ(said_.size(), 3U);
  EXPECT_THAT(said_[0], HasSubstr(server.url("/")));
  EXPECT_THAT(said_[1], HasSubstr("it answered with status 500"));
  EXPECT_THAT(said_[2], HasSubstr("its answer is larger than 64 KiB"));
}

TEST_F(WatchTest, NobodyAtAnAddressIsSaid) {
  std::string url;
  {
    Server gone({""});
    url = gone.url("/");
  }
  watch({.address = url});
  ASSERT_TRUE(until([&] { return !said_.empty(); }));
  EXPECT_THAT(said_[0], HasSubstr("Connection refused"));
}

}  // namespace
}  // namespace regroup::launcher
