// A real server: how addresses are asked, and whose machine an answer is about.
#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/streambuf.hpp>
#include <boost/asio/write.hpp>
#include <mutex>
#include <thread>

#include "tests/launcher/preempt/watch_fixture.h"

namespace regroup::preempt {
namespace {

using boost::asio::ip::tcp;
using testing::HasSubstr;

class AddressTest : public WatchTest {};

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
      boost::asio::write(socket, boost::asio::buffer(answers_[std::min(i, answers_.size() - 1)]),
                         error);
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
  return fmt::format("HTTP/1.1 {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}", status,
                     body.size(), body);
}

TEST_F(AddressTest, SendsTheRequestsThatCloudsRequire) {
  std::optional<Server> server;
  server.emplace(std::vector<std::string>{answer("404 Not Found", "<html>"),
                                          answer("200 OK", "FALSE"), answer("200 OK", "TRUE")});
  watch({.address = server->url("/computeMetadata/v1/instance/preempted")});
  ASSERT_TRUE(until([&] { return !heard_.empty(); }));
  EXPECT_TRUE(said_.empty()) << said_[0];
  watch_.reset();
}

TEST_F(AddressTest, SendsATokenIfRequired) {
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

TEST_F(AddressTest, ReportsAndSurvivesAnInvalidAnswer) {
  Server server({"rubbish\r\n\r\n", answer("500 Oops", ""),
                 answer("200 OK", std::string(100'000, 'x')), answer("200 OK", "kill")});
  watch({.address = server.url("/")});
  ASSERT_TRUE(until([&] { return !heard_.empty(); }));
  ASSERT_EQ(said_.size(), 3U);
  EXPECT_THAT(said_[0], HasSubstr(server.url("/")));
  EXPECT_THAT(said_[1], HasSubstr("HTTP status 500"));
  EXPECT_THAT(said_[2], HasSubstr("answer larger than 64 KiB"));
}

TEST_F(AddressTest, ReportsAnAddressWithoutAServer) {
  std::string url;
  {
    Server gone({""});
    url = gone.url("/");
  }
  watch({.address = url});
  ASSERT_TRUE(until([&] { return !said_.empty(); }));
  EXPECT_THAT(said_[0], HasSubstr("Connection refused"));
}

TEST_F(AddressTest, IgnoresAnEventOfAnotherMachine) {
  const std::string other =
      answer("200 OK", azure("Preempt", 30, R"(, "Resources": ["workers_4"])"));
  Server server(
      {other, answer("200 OK", R"({"compute": {"name": "Workers_0"}})"), other,
       answer("200 OK", azure("Preempt", 30, R"(, "Resources": ["workers_4", "workers_0"])"))});
  watch({.address = server.url("/metadata/scheduledevents?api-version=2020-07-01")});
  ASSERT_TRUE(until([&] { return !heard_.empty(); }));
  const std::vector<std::string> asked = server.asked();
  ASSERT_GE(asked.size(), 4U);
  EXPECT_THAT(asked[1], HasSubstr("GET /metadata/instance?api-version="));
  EXPECT_THAT(asked[1], HasSubstr("Metadata: true\r\n"));
  EXPECT_THAT(asked[2],
              HasSubstr("GET /metadata/scheduledevents?"));  // it knows its name from now on
  EXPECT_TRUE(said_.empty());
}

TEST_F(AddressTest, ComparesWithTheHostNameIfTheCloudNameIsUnknown) {
  const std::string other =
                        answer("200 OK", azure("Preempt", 30, R"(, "Resources": ["workers_4"])")),
                    none = answer("404 Not Found", "");
  Server server({other, none, other, none,
                 answer("200 OK", azure("Preempt", 30, R"(, "Resources": ["n1"])"))});
  watch({.address = server.url("/metadata/scheduledevents")});
  ASSERT_TRUE(until([&] { return !heard_.empty(); }));
  ASSERT_EQ(said_.size(), 1U);
  EXPECT_THAT(said_[0],
              HasSubstr("Preempt of workers_4 is assumed to concern another machine; this host is "
                        "n1, and its name in the cloud is unknown (status 404)"));
}

}  // namespace
}  // namespace regroup::preempt
