// What sources say, and what is understood.
#include "launcher/notice/notice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "launcher/notice/http.h"

namespace regroup::launcher {
namespace {

constexpr std::int64_t kNow = 1'795'379'400;  // 2026-11-22T20:30:00Z

// "kill 120 a,b", "none", or the error.
std::string understood(std::string_view text) {
  const auto notice = parse_notice(text, kNow);
  if (!notice.ok()) return "error: " + notice.status().message();
  if (!notice->has_value()) return "none";
  const Notice& found = **notice;
  const std::string within =
      found.within ? fmt::format("{:g}", std::chrono::duration<double>(*found.within).count()) : "?";
  return fmt::format("{} {}{}{}", kind_name(found.kind), within, found.who.empty() ? "" : " ",
                     fmt::join(found.who, ","));
}

TEST(Notice, IsUnderstood) {
  const struct {
    const char* text;
    const char* expected;
  } kCases[] = {
      {"", "none"},
      {" \n", "none"},
      {"shrink", "shrink ?"},
      {"kill within=2.5\n", "kill 2.5"},
      {"suspend within=0 who=n1,n2.example.org", "suspend 0 n1,n2.example.org"},
      {"shrink within=-1", "error: 'within=-1': a number of seconds is wanted"},
      {"shrink within=nan", "error: 'within=nan': a number of seconds is wanted"},
      {"shrink who=", "error: 'who=': within=SECONDS or who=HOST,... is wanted"},
      {"shrink who=a,,b", "error: 'who=a,,b': names of hosts are wanted"},
      {"shrink soon", "error: 'soon': within=SECONDS or who=HOST,... is wanted"},
      {"Shrink",
       "error: 'Shrink' is no notice: shrink, suspend or kill [within=SECONDS] [who=HOST,...] is wanted"},
      {"<html>\x01",
       "error: '<html>?' is no notice: shrink, suspend or kill [within=SECONDS] [who=HOST,...] is wanted"},
      // EC2, "Spot Instance interruption notices": instance-action.
      {R"({"action": "stop", "time": "2026-11-22T20:32:00Z"})", "suspend 120"},
      {R"({"action": "terminate", "time": "2026-11-22T20:32:00Z"})", "kill 120"},
      {R"({"action": "terminate", "time": "2026-11-22T20:29:00Z"})", "kill 0"},
      {R"({"action": "terminate", "time": 5})", "kill ?"},
      {R"({"action": "dance"})", "error: \"action\": 'dance' is none that is known"},
      {"{\"action", "error: '{\"action' is no notice that is known"},
      {"{}", "error: '{}' is no notice that is known"},
      // Google, "Preemptible VM instances" and "Host maintenance events".
      {"FALSE", "none"},
      {"TRUE", "kill ?"},
      {"NONE", "none"},
      {"MIGRATE_ON_HOST_MAINTENANCE", "none"},
      {"TERMINATE_ON_HOST_MAINTENANCE", "kill ?"},
      // Azure, "Scheduled Events for Linux VMs".
      {R"({"DocumentIncarnation": 1, "Events": []})", "none"},
      {R"({"Events": [{"EventType": "Reboot", "NotBefore": "Sun, 22 Nov 2026 20:45:00 GMT"}]})", "kill 900"},
      {R"({"Events": [{"EventType": "Preempt", "EventStatus": "Started", "NotBefore": ""}]})", "kill 0"},
      {R"({"Events": [7, {"EventType": "Freeze"}]})", "suspend ?"},
  };
  for (const auto& [text, expected] : kCases) EXPECT_EQ(understood(text), expected) << text;
}

TEST(Notice, IsForAHostByEitherFormOfItsName) {
  EXPECT_TRUE(is_for({}, "n1"));
  const Notice notice{Notice::Kind::kKill, {"n1", "n2.example.org"}, {}};
  EXPECT_TRUE(is_for(notice, "n1"));
  EXPECT_TRUE(is_for(notice, "n1.example.org"));
  EXPECT_TRUE(is_for(notice, "n2"));
  EXPECT_FALSE(is_for(notice, "n2.other.org"));
  EXPECT_FALSE(is_for(notice, "n3"));
}

TEST(Http, AddressesAreReadOrRefused) {
  const auto address = parse_http_address("http://169.254.169.254/latest/meta-data?x=1");
  ASSERT_TRUE(address.ok());
  EXPECT_EQ(address->host, "169.254.169.254");
  EXPECT_EQ(address->port, "80");
  EXPECT_EQ(address->target, "/latest/meta-data?x=1");
  EXPECT_EQ(parse_http_address("http://h:8080")->port, "8080");
  EXPECT_EQ(parse_http_address("http://h:8080")->target, "/");
  for (const char* bad : {"https://h/", "h", "http://", "http://:80/", "http://h:/", "http://h:x/",
                          "http://h:123456/", "http://h/a b"})
    EXPECT_FALSE(parse_http_address(bad).ok()) << bad;
}

}  // namespace
}  // namespace regroup::launcher
