// What the tests of NoticeWatch share.
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "launcher/preempt/notice_watch.h"

namespace regroup::preempt {

class WatchTest : public testing::Test {
 protected:
  WatchTest() { std::filesystem::create_directories(folder_); }
  ~WatchTest() override { std::filesystem::remove_all(folder_); }

  NoticeWatch& watch(spec::NoticeRequest sources,
                     const std::function<void(const std::string&)>& over = {},
                     const std::vector<std::string>& suspended_by = {}) {
    sources.every = std::chrono::milliseconds(10);
    watch_.emplace(
        loop_, std::move(sources), "n1", spec::Environment{{"PATH", "/usr/bin:/bin"}},
        NoticeWatch::Events{
            [this](const Notice& notice, const std::string& source) {
              heard_.push_back(fmt::format("{} {}", kind_name(notice.kind), source));
            },
            [this](const std::string& text) { said_.push_back(text); }, over,
            [this](const Notice&, const std::string&) { pauses_.emplace_back("pauses"); },
            [this](const std::string&) { pauses_.emplace_back("moves"); }});
    watch_->start(suspended_by);
    return *watch_;
  }
  // False: it did not become true within ten seconds.
  template <class Condition>
  bool until(Condition condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition() && std::chrono::steady_clock::now() < deadline)
      loop_.run_one_for(std::chrono::milliseconds(50));
    return condition();
  }
  void write(const std::string& text) { std::ofstream(path_) << text; }

  const std::string folder_ = testing::TempDir() + "notice_watch-" + std::to_string(::getpid());
  const std::string path_ = folder_ + "/notice";
  boost::asio::io_context loop_{1};
  std::optional<NoticeWatch> watch_;
  std::vector<std::string> heard_, said_, pauses_;
};

// A list of one event of Azure's, or of none, in so many seconds.
inline std::string azure(const std::string& type, int within, const std::string& fields = "") {
  const std::time_t at = std::time(nullptr) + within;
  std::array<char, 64> time{};
  std::strftime(time.data(), time.size(), "%a, %d %b %Y %H:%M:%S GMT", std::gmtime(&at));
  return fmt::format(R"({{"DocumentIncarnation": 1, "Events": [{{"EventId": "1", "EventType": "{}",
      "EventStatus": "Scheduled", "NotBefore": "{}"{}}}]}})",
                     type, time.data(), fields);
}

}  // namespace regroup::preempt
