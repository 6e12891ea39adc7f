// The launcher's side for tests on several hosts: usage: spawn_controller LIMIT_S PROGRAM WDIR
// SSH... -- HOST... Starts PROGRAM (spawn_agent) on each host by the ssh command, and writes what
// happens as lines: "up HOST", "link NODE NAME", "echo NODE", "line HOST TEXT", "ended HOST SECONDS
// STATUS". Its input "ping" is answered by all links, its end closes them and ends the agents.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>
#include <map>
#include <sstream>

#include "launcher/agent/process_spawner.h"
#include "tests/launcher/transport/net_test.h"

namespace regroup::agent {
namespace {

template <class... Parts>
void say(const Parts&... parts) {
  (std::cout << ... << parts) << std::endl;
}

class Controller {
 public:
  Controller(int limit_s, std::vector<std::string> ssh, const std::string& path,
             const std::string& home)
      : secret_(transport::new_secret()),
        listener_(loop_, node(secret_, 0), [this](auto channel) { welcome(std::move(channel)); }),
        input_(loop_, ::dup(STDIN_FILENO)) {
    EXPECT_TRUE(listener_.start(0).ok());
    SpawnOptions options;
    options.limit = std::chrono::seconds(limit_s);
    options.environment = {{"PATH", path}, {"HOME", home}};
    SpawnEvents events{
        .up = [this](proto::NodeId n) { say("up ", hosts_[n]); },
        .line = [this](proto::NodeId n,
                       const std::string& text) { say("line ", hosts_[n], ' ', text); },
        .ended = [this](proto::NodeId n, const base::Status& why) { ended(n, why); }};
    spawner_ = make_ssh_spawner(loop_, secret_, std::move(events), options, std::move(ssh)).value();
    wait_input();
  }

  void start(const std::string& program, const std::string& wdir, const std::string& host) {
    const auto n = static_cast<proto::NodeId>(hosts_.size() + 1);
    hosts_[n] = host;
    const auto endpoints = transport::own_endpoints(listener_.port());
    spawner_->start({n,
                     host,
                     program,
                     {"--connect", "job-1", std::to_string(n), transport::to_string(*endpoints)},
                     wdir});
    ++running_;
  }

  void run() {
    while (running_ > 0) loop_.run_one();
  }

 private:
  void welcome(const std::shared_ptr<transport::SecureChannel>& channel) {
    const proto::NodeId n = channel->peer();
    links_[n] = channel;
    channel->set_handlers(
        {.message =
             [n](const proto::Message& message) {
               const auto* reply = std::get_if<proto::Reply>(&message.body);
               if (reply != nullptr) say("link ", n, ' ', reply->message);
               if (reply == nullptr) say("echo ", n);
             },
         .closed = [n](const base::Status& why) { say("lost ", n, ' ', why.to_string()); }});
  }

  void ended(proto::NodeId n, const base::Status& why) {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin_;
    say("ended ", hosts_[n], ' ', fmt::format("{:.2f}", passed.count()), ' ', why.to_string());
    --running_;
  }

  void wait_input() {
    input_.async_wait(input_.wait_read, [this](const boost::system::error_code&) {
      std::array<char, 64> bytes;
      const ssize_t count = ::read(input_.native_handle(), bytes.data(), bytes.size());
      for (const auto& [n, link] : links_) {
        if (count > 0) link->send({1, proto::Query{}});
        if (count <= 0) link->close_when_sent();
      }
      if (count > 0) return wait_input();
      for (const auto& [n, host] : hosts_) spawner_->end(n);
    });
  }

  boost::asio::io_context loop_;
  const std::shared_ptr<const transport::JobSecret> secret_;
  transport::SecureListener listener_;
  boost::asio::posix::stream_descriptor input_;
  std::map<proto::NodeId, std::string> hosts_;
  std::map<proto::NodeId, std::shared_ptr<transport::SecureChannel>> links_;
  std::unique_ptr<Spawner> spawner_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  int running_ = 0;
};

int run(std::vector<std::string> words) {
  const auto end = std::find(words.begin(), words.end(), "--");
  if (words.size() < 5 || end == words.end()) return 2;
  Controller controller(std::stoi(words[0]), {words.begin() + 3, end}, std::getenv("PATH"),
                        std::getenv("HOME"));
  for (auto host = end + 1; host != words.end(); ++host)
    controller.start(words[1], words[2], *host);
  controller.run();
  return 0;
}

}  // namespace
}  // namespace regroup::agent

int main(int argc, char** argv) { return regroup::agent::run({argv + 1, argv + argc}); }
