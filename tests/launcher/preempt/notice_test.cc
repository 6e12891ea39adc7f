// The answers of notice sources, and how they are parsed.
#include "launcher/preempt/notice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/preempt/http.h"

namespace regroup::preempt {
namespace {

constexpr std::int64_t kNow = 1'795'379'400;  // 2026-11-22T20:30:00Z

std::string in_words(const Notice& found) {
  const auto seconds = [](const std::optional<base::Duration>& time) {
    return time ? fmt::format("{:g}", std::chrono::duration<double>(*time).count()) : "?";
  };
  return fmt::format("{} {}{}{}{}", kind_name(found.kind),
                     found.begun ? "now" : seconds(found.within),
                     found.lasts ? " for " + seconds(found.lasts) : "",
                     found.hosts.empty() ? "" : " ", fmt::join(found.hosts, ","));
}

// "kill 120 a,b", "kill 5; kill 10", "none", or the error.
std::string understood(std::string_view text) {
  const auto notices = parse_notices(text, kNow);
  if (!notices.ok()) return "error: " + notices.status().message();
  std::string out;
  for (const Notice& each : *notices) out += (out.empty() ? "" : "; ") + in_words(each);
  return out.empty() ? "none" : out;
}

struct Case {
  const char* text;
  const char* expected;
};

TEST(Notice, ParsesTheOwnFormat) {
  static constexpr Case kCases[] = {
      {"", "none"},
      {" \n", "none"},
      {"shrink", "shrink ?"},
      {"kill within=2.5\n", "kill 2.5"},
      {"suspend within=0 hosts=n1,n2.example.org", "suspend 0 n1,n2.example.org"},
      {"suspend\n  within=3\n  hosts=n1", "suspend 3 n1"},
      {"suspend who=n1,n2", "suspend ? n1,n2"},  // the former name of "hosts"
      {"pause within=5 for=9", "pause 5 for 9"},
      // Several: the soonest first.
      {"# of the night\nkill within=60 hosts=n3\n\nshrink within=5 hosts=n1\r\n",
       "shrink 5 n1; kill 60 n3"},
      {"kill\nkill within=1\nkill within=40", "kill 1; kill ?; kill 40"},
      {"shrink within=-1", "error: 'within=-1': expected a number of seconds"},
      {"shrink within=nan", "error: 'within=nan': expected a number of seconds"},
      {"shrink hosts=", "error: 'hosts=': expected within=SECONDS, for=SECONDS or hosts=HOST,..."},
      {"shrink hosts=a,,b", "error: 'hosts=a,,b': expected host names"},
      {"shrink soon", "error: 'soon': expected within=SECONDS, for=SECONDS or hosts=HOST,..."},
      {"kill\nShrink",
       "error: malformed notice 'Shrink': expected shrink, suspend, kill or pause, then "
       "[within=SECONDS] "
       "[for=SECONDS] [hosts=HOST,...]"},
      {"<html>\x01",
       "error: malformed notice '<html>?': expected shrink, suspend, kill or pause, then "
       "[within=SECONDS] "
       "[for=SECONDS] [hosts=HOST,...]"},
      {"within=5",
       "error: malformed notice 'within=5': expected shrink, suspend, kill or pause, then "
       "[within=SECONDS] "
       "[for=SECONDS] [hosts=HOST,...]"},
  };
  for (const auto& [text, expected] : kCases) EXPECT_EQ(understood(text), expected) << text;
}

TEST(Notice, ParsesTheFormatOfEc2) {
  static constexpr Case kCases[] = {
      // spot/instance-action, and what it was before.
      {R"({"action": "stop", "time": "2026-11-22T20:32:00Z"})", "suspend 120"},
      {R"({"action": "hibernate", "time": "2026-11-22T20:30:00Z"})", "suspend now"},
      {R"({"action": "terminate", "time": "2026-11-22T20:32:00Z"})", "kill 120"},
      {R"({"action": "terminate", "time": "2026-11-22T20:29:00Z"})", "kill now"},
      {R"({"action": "terminate", "time": 5})", "kill ?"},
      {R"({"action": "dance"})", "error: unknown \"action\" 'dance'"},
      {"2026-11-22T20:31:00Z", "kill 60"},
      // A recommendation takes nothing away.
      {R"({"noticeTime": "2026-11-22T20:29:00Z"})", "advice ?"},
      // events/maintenance/scheduled: what is over stays listed.
      {"[]", "none"},
      {R"([{"NotBefore": "22 Nov 2026 20:40:00 GMT", "Code": "system-reboot", "EventId": "i-1",
            "Description": "scheduled reboot", "State": "active"}])",
       "kill 600"},
      {R"([{"NotBefore": "22 Nov 2026 20:40:00 GMT", "Code": "instance-stop", "State": "active"},
           {"NotBefore": "22 Nov 2026 20:35:00 GMT", "Code": "system-maintenance", "State": "active"}])",
       "suspend 300; kill 600"},
      {R"([{"NotBefore": "22 Nov 2026 20:40:00 GMT", "Code": "system-reboot", "State": "canceled"},
           {"NotBefore": "22 Nov 2026 20:29:00 GMT", "Code": "instance-retirement", "State": "completed"},
           {"Code": "system-reboot", "Description": "[Canceled] scheduled reboot"}])",
       "none"},
      {"[7]", "error: malformed notice: expected a \"Code\" in each event of the list"},
      // autoscaling/target-lifecycle-state.
      {"InService", "none"},
      {"Terminated", "kill ?"},
      {"{\"action",
       "error: unknown notice '{\"action': expected an answer of EC2, Azure or Google Cloud"},
      {"{}", "error: unknown notice '{}': expected an answer of EC2, Azure or Google Cloud"},
  };
  for (const auto& [text, expected] : kCases) EXPECT_EQ(understood(text), expected) << text;
}

TEST(Notice, ParsesTheFormatOfGoogle) {
  static constexpr Case kCases[] = {
      {"FALSE", "none"},
      {"TRUE", "kill ?"},
      {"\"TRUE\"", "kill ?"},  // with alt=json
      {"NONE", "none"},
      {"\"NONE\"", "none"},
      {"TERMINATE_ON_HOST_MAINTENANCE", "kill ?"},
      {"MIGRATE_ON_HOST_MAINTENANCE", "pause ?"},  // it runs on, elsewhere
      // upcoming-maintenance.
      {R"({"can_reschedule": "false", "maintenance_status": "PENDING", "type": "SCHEDULED",
           "window_start_time": "2026-11-22T20:35:00Z", "window_end_time": "2026-11-23T00:35:00Z"})",
       "kill 300"},
      {R"({"maintenanceStatus": "PENDING", "windowStartTime": "2026-11-22T15:30:00.000-05:30"})",
       "kill 1800"},
      {R"({"maintenance_status": "ONGOING", "window_start_time": "2026-11-22T20:35:00Z"})",
       "kill now"},
      {R"({"maintenance_status": "COMPLETED", "window_start_time": "2026-11-22T20:29:00Z"})",
       "none"},
  };
  for (const auto& [text, expected] : kCases) EXPECT_EQ(understood(text), expected) << text;
}

TEST(Notice, ParsesTheFormatOfAzure) {
  static constexpr Case kCases[] = {
      {R"({"DocumentIncarnation": 1, "Events": []})", "none"},
      {R"({"Events": [{"EventType": "Reboot", "NotBefore": "Sun, 22 Nov 2026 20:45:00 GMT"}]})",
       "kill 900"},
      {R"({"Events": [{"EventType": "Redeploy", "NotBefore": "2026-11-22T20:45:00Z", "Resources": ["vm_1"]}]})",
       "kill 900 vm_1"},
      // An empty time is that of an event that has begun, and so is one that has passed.
      {R"({"Events": [{"EventType": "Preempt", "EventStatus": "Started", "NotBefore": ""}]})",
       "kill now"},
      {R"({"Events": [{"EventType": "Preempt", "EventStatus": "Scheduled", "NotBefore": ""}]})",
       "kill now"},
      {R"({"Events": [{"EventType": "Terminate", "NotBefore": "Sun, 22 Nov 2026 20:29:00 GMT"}]})",
       "kill now"},
      {R"({"Events": [{"EventType": "Terminate", "NotBefore": "soon"}]})", "kill ?"},
      // A freeze is a pause of seconds; 0: none at all, -1: nobody knows.
      {R"({"Events": [7, {"EventType": "Freeze"}]})", "pause ?"},
      {R"({"Events": [{"EventType": "Freeze", "DurationInSeconds": 9, "EventStatus": "Scheduled",
           "NotBefore": "Sun, 22 Nov 2026 20:40:00 GMT"}]})",
       "pause 600 for 9"},
      {R"({"Events": [{"EventType": "Freeze", "DurationInSeconds": 0}]})", "none"},
      {R"({"Events": [{"EventType": "Freeze", "DurationInSeconds": -1}]})", "pause ?"},
      // Not the first, the soonest; what is over or cancelled is none.
      {R"({"Events": [{"EventType": "Terminate", "NotBefore": "Sun, 22 Nov 2026 20:40:00 GMT", "Resources": ["a"]},
           {"EventType": "Preempt", "NotBefore": "Sun, 22 Nov 2026 20:30:30 GMT", "Resources": ["b", "c"]},
           {"EventType": "Reboot", "EventStatus": "Completed", "NotBefore": ""},
           {"EventType": "Redeploy", "EventStatus": "Canceled", "NotBefore": ""}]})",
       "kill 30 b,c; kill 600 a"},
      {R"({"Events": [{"EventType": "Hovering"}]})", "advice ?"},
  };
  for (const auto& [text, expected] : kCases) EXPECT_EQ(understood(text), expected) << text;
}

TEST(Notice, ParsesTimeZones) {
  const struct {
    const char* text;
    std::int64_t behind;  // kNow; -1: it is no time
  } kCases[] = {
      {"2026-11-22T20:30:05Z", 5},
      {"2026-11-22T20:30:05", 5},
      {"2026-11-22T20:30:05.123456Z", 5},
      {"2026-11-22 20:30:05", 5},
      {"2026-11-22T22:30:05+02:00", 5},
      {"2026-11-22T15:00:05-0530", 5},
      {"2026-11-22T21:30:05+01", 5},
      {"Sun, 22 Nov 2026 20:30:05 GMT", 5},
      {"Sun, 22 Nov 2026 20:30:05 UTC", 5},
      {"22 Nov 2026 20:30:05 GMT", 5},
      {"Sun, 22 Nov 2026 22:30:05 +0200", 5},
      {"2026-11-22T20:30:05 PST8PDT", -1},
      {"2026-11-22T20:30:05+2", -1},
      {"tomorrow", -1},
      {"", -1},
  };
  for (const auto& [text, behind] : kCases) {
    const auto at = parse_time(text);
    EXPECT_EQ(at ? *at - kNow : -1, behind) << text;
  }
}

TEST(Notice, CombinesTheGravestKindWithTheSoonestTime) {
  const auto all = [](std::string_view text) {
    const auto notices = parse_notices(text, kNow);
    const auto worst = notices.ok() ? gravest(*notices) : std::nullopt;
    return worst ? in_words(*worst) : "none";
  };
  EXPECT_EQ(all("kill within=60\nshrink within=5"), "kill 5");
  EXPECT_EQ(all("suspend within=5\nkill within=60"), "kill 5");
  EXPECT_EQ(all("pause within=1\nsuspend within=60"), "suspend 60");
  EXPECT_EQ(all("shrink within=9\nshrink within=4"), "shrink 4");
  EXPECT_EQ(all("pause"), "none");
  EXPECT_EQ(
      all(R"({"Events": [{"EventType": "Terminate", "NotBefore": "Sun, 22 Nov 2026 20:40:00 GMT"},
                               {"EventType": "Reboot", "EventStatus": "Started"}]})"),
      "kill now");
}

TEST(Notice, MatchesShortAndFullHostNames) {
  EXPECT_TRUE(is_for({}, "n1"));
  const Notice notice{Notice::Kind::kKill, {"n1", "n2.example.org", "10.0.0.7"}, {}};
  EXPECT_TRUE(is_for(notice, "n1"));
  EXPECT_TRUE(is_for(notice, "N1"));
  EXPECT_TRUE(is_for(notice, "n1.example.org"));
  EXPECT_TRUE(is_for(notice, "n2"));
  EXPECT_TRUE(is_for(notice, "n2.Example.org."));
  EXPECT_TRUE(is_for(notice, "10.0.0.7"));
  EXPECT_FALSE(is_for(notice, "n2.other.org"));
  EXPECT_FALSE(is_for(notice, "n3"));
  EXPECT_FALSE(is_for(notice, "n11"));
  EXPECT_FALSE(is_for(notice, "10.0.0.8"));
}

TEST(Notice, MatchesAMachineByItsCloudName) {
  const auto named = [](const char* resource, const char* host,
                        const std::vector<std::string>& names) {
    Notice notice{Notice::Kind::kKill, {resource}};
    notice.machines = true;
    return is_for(notice, host, names);
  };
  EXPECT_TRUE(named("workers_4", "h", {"workers_4"}));
  EXPECT_TRUE(named("Workers_4", "h", {"workers_4", "w000004"}));
  EXPECT_TRUE(named("_workers_4", "h", {"workers_4"}));  // a role's instance
  EXPECT_TRUE(
      named("/subscriptions/0/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/vm7",
            "h", {"VM7"}));
  EXPECT_FALSE(named("workers_4", "h", {"workers_14"}));
  EXPECT_FALSE(named("workers_4", "h", {"workers_40"}));
  EXPECT_FALSE(named("workers", "h", {"workers_4"}));
  EXPECT_FALSE(named("", "h", {""}));
  // Where the cloud cannot be asked: by the host's name, which a scale set makes of its own and a
  // number.
  EXPECT_TRUE(named("vm7", "vm7.internal.example.org", {}));
  EXPECT_TRUE(named("aks-gpu-3001-vmss_25", "aks-gpu-3001-vmss00000p", {}));
  EXPECT_TRUE(named("aks-gpu-3001-vmss_36", "aks-gpu-3001-vmss000010", {}));
  EXPECT_FALSE(named("aks-gpu-3001-vmss_25", "aks-gpu-3001-vmss000025", {}));
  EXPECT_FALSE(named("other_4", "h", {}));
}

TEST(Notice, FindsMachineNamesInTheMetadata) {
  using testing::ElementsAre;
  EXPECT_THAT(parse_machine_names(
                  R"({"compute": {"name": "vm_4", "osProfile": {"computerName": "vm000004"}}})"),
              ElementsAre("vm_4", "vm000004"));
  EXPECT_THAT(parse_machine_names(R"({"name": "vm_4"})"), ElementsAre("vm_4"));
  EXPECT_THAT(parse_machine_names("vm_4\n"), ElementsAre("vm_4"));
  for (const char* none :
       {"", "{}", "[]", "<html> no", R"({"compute": 7})", R"({"compute": {"osProfile": 7}})"})
    EXPECT_THAT(parse_machine_names(none), testing::IsEmpty()) << none;
}

TEST(Http, ParsesValidAddressesAndRefusesOthers) {
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
}  // namespace regroup::preempt
