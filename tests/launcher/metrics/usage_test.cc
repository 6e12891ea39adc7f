// Usage from recorded /proc and control groups, over time, and as text.
#include "launcher/metrics/usage.h"
#include "base/status.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "launcher/metrics/usage_columns.h"
#include "launcher/metrics/usage_meter.h"
#include "launcher/metrics/usage_reporter.h"
#include "launcher/metrics/usage_text.h"

namespace regroup::metrics {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::SizeIs;

class UsageTest : public testing::Test {
 protected:
  UsageTest() : root_(fs::temp_directory_path() / ("regroup-usage-" + std::to_string(::getpid()))) {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  ~UsageTest() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  // Ticks of user and system time, and pages.
  void process(int pid, int group, const std::string& name, int user, int system, int pages) {
    write("proc/" + std::to_string(pid) + "/stat",
          std::to_string(pid) + " (" + name + ") S 1 " + std::to_string(group) +
              " 1 0 -1 4194304 9 8 7 6 " + std::to_string(user) + " " + std::to_string(system) +
              " 0 0 20 0 3 0 12345 99999999 " + std::to_string(pages) +
              " 18446744073709551615 1 1\n");
  }

  fs::path root_;
  const double tick_ = 1.0 / static_cast<double>(::sysconf(_SC_CLK_TCK));
  const std::uint64_t page_ = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
};

TEST_F(UsageTest, AddsUpProcessGroups) {
  process(10, 10, "python", 200, 50, 1000);
  process(11, 10, "a) S 1 99 (b", 100, 0, 10);  // names hold anything
  process(12, 12, "other", 1, 1, 1);
  write("proc/13/stat", "13 (cut");
  write("proc/self/stat", "14 (link) S 1 10 1 0 -1 0 0 0 0 0 9 9 0 0 20 0 1 0 1 1 1\n");
  const auto usage = usage_of_process_groups(root_);
  ASSERT_THAT(usage, SizeIs(2));
  EXPECT_DOUBLE_EQ(usage.at(10).cpu_seconds, 350 * tick_);
  EXPECT_EQ(usage.at(10).memory_bytes, 1010 * page_);
  EXPECT_EQ(usage.at(10).processes, 2U);
}

TEST_F(UsageTest, ReadsControlGroupsOfBothVersions) {
  write("v2/cpu.stat", "usage_usec 2500000\nuser_usec 2000000\n");
  write("v2/memory.current", "4096\n");
  write("v1cpu/cpuacct.usage", "1500000000\n");
  write("v1mem/memory.usage_in_bytes", "8192\n");
  const GroupUsage two = usage_of_control_groups({root_ / "v2"});
  EXPECT_DOUBLE_EQ(*two.cpu_seconds, 2.5);
  EXPECT_EQ(*two.memory_bytes, 4096U);
  const GroupUsage one = usage_of_control_groups({root_ / "v1cpu", root_ / "v1mem"});
  EXPECT_DOUBLE_EQ(*one.cpu_seconds, 1.5);
  EXPECT_EQ(*one.memory_bytes, 8192U);
  EXPECT_FALSE(usage_of_control_groups({root_ / "none"}).memory_bytes);
}

TEST_F(UsageTest, MeterReportsRatesAndGpus) {
  process(10, 10, "python", 100, 0, 10);
  UsageMeter meter(
      [](const std::string& uuid) -> base::Result<GpuReading> {
        if (uuid == "GPU-gone") return base::not_found("no such GPU");
        return GpuReading{{uuid, 93, 5, 40, 250}, {}};
      },
      root_);
  const std::vector<UsageTarget> targets = {{3, 1, 10, {}, {"GPU-a", "GPU-gone"}},
                                            {4, 2, 99, {}, {}}};
  const base::TimePoint start{};
  EXPECT_EQ(meter.sample(targets, start).at(0).cpus, 0);
  process(10, 10, "python", 300, 100, 10);
  const auto samples = meter.sample(targets, start + std::chrono::seconds(2));
  ASSERT_THAT(samples, SizeIs(1));  // 99 is no living process group
  EXPECT_DOUBLE_EQ(samples[0].cpus, 300 * tick_ / 2);
  ASSERT_THAT(samples[0].gpus, SizeIs(1));
  EXPECT_EQ(samples[0].gpus[0].busy_percent, 93);
}

// Two ranks on one GPU, one of them with two processes there.
TEST_F(UsageTest, EachRankHasItsOwnShareOfAGpu) {
  for (const auto& [pid, group] : {std::pair(10, 10), {11, 10}, {20, 20}, {30, 30}})
    process(pid, group, "python", 1, 1, 1);
  std::vector<GpuProcess> listed = {{10, 3, 20}, {11, 1, 5}, {20, 7, 60}};
  UsageMeter meter(
      [&](const std::string& uuid) -> base::Result<GpuReading> {
        return GpuReading{{uuid, 85, 12, 40, 250}, listed};
      },
      root_);
  const std::vector<UsageTarget> targets = {
      {1, 0, 10, {}, {"GPU-a"}}, {2, 1, 20, {}, {"GPU-a"}}, {3, 2, 30, {}, {"GPU-a"}}};
  const auto samples = meter.sample(targets, {});
  ASSERT_THAT(samples, SizeIs(3));
  EXPECT_EQ(samples[0].gpus.at(0).rank_memory_used, 4U);
  EXPECT_EQ(samples[0].gpus.at(0).rank_busy_percent, 25);
  EXPECT_EQ(samples[1].gpus.at(0).rank_memory_used, 7U);
  EXPECT_EQ(samples[2].gpus.at(0).rank_memory_used, 0U);
  EXPECT_EQ(samples[2].gpus.at(0).memory_used, 12U);
  listed[1].memory_used.reset();
  const auto unknown = meter.sample(targets, {});
  EXPECT_FALSE(unknown.at(0).gpus.at(0).rank_memory_used);
  EXPECT_EQ(unknown.at(1).gpus.at(0).rank_memory_used, 7U);
  process(4712, 4712, "other", 1, 1, 1);
  listed = {{4711, 9, 80}, {4712, 1, 1}};  // of another pid namespace, one exists here too
  EXPECT_FALSE(meter.sample(targets, {}).at(0).gpus.at(0).rank_memory_used);
}

TEST_F(UsageTest, PrefersControlGroupsToProcesses) {
  process(10, 10, "python", 100, 0, 10);
  write("group/memory.current", "123\n");
  UsageMeter meter({}, root_);
  const auto samples = meter.sample({{0, 0, 10, {root_ / "group"}, {}}}, {});
  EXPECT_EQ(samples.at(0).usage.memory_bytes, 123U);
  EXPECT_DOUBLE_EQ(samples[0].usage.cpu_seconds, 100 * tick_);
}

TEST(UsageText, CsvHasAsManyFieldsAsItsHeader) {
  const UsageSample sample{
      {3, 1, 10, {}, {}}, {1.5, 4096, 2}, 0.75, {{"GPU-a", 93, 5, 40, 250}}, "h"};
  UsageSample plain = sample;
  plain.gpus.clear();
  EXPECT_EQ(usage_csv(12.5, {sample}), "12.500,h,3,1,10,1.50,0.75,4096,2,GPU-a,93,5,250.0,,\n");
  const auto commas = [](const std::string& text) {
    return std::count(text.begin(), text.end(), ',');
  };
  EXPECT_EQ(commas(usage_csv(1, {plain})), commas(usage_csv_header()));
  EXPECT_EQ(commas(usage_csv(1, {sample})), commas(usage_csv_header()));
  UsageSample shared = sample;
  shared.gpus[0].rank_busy_percent = 40;
  shared.gpus[0].rank_memory_used = 3;
  EXPECT_THAT(usage_csv(1, {shared}), testing::EndsWith(",GPU-a,93,5,250.0,40,3\n"));
}

TEST(UsageText, JsonSurvivesARoundTrip) {
  const UsageSample sample{{3, 1, 10, {}, {}}, {1.5, 4096, 2}, 0.75, {{"GPU-a", 93, 5, 40, 250}}};
  const auto read = usage_from_json(usage_json({sample}));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(usage_csv(1, *read), usage_csv(1, {sample}));
  UsageSample shared = sample;
  shared.gpus[0].rank_busy_percent = 40;
  shared.gpus[0].rank_memory_used = 3;
  EXPECT_EQ(usage_csv(1, *usage_from_json(usage_json({shared}))), usage_csv(1, {shared}));
  for (const char* text : {"", "[]", "{}", R"({"members": [{}]})", R"({"members": [{"id": "x"}]})"})
    EXPECT_FALSE(usage_from_json(text).ok()) << text;
}

// Converting such a number to an integer is undefined.
TEST(UsageText, RefusesCountsThatAreNotWholeNumbers) {
  const std::string good =
      usage_json({{{3, 1, 10, {}, {}}, {1.5, 4096, 2}, 0.75, {{"GPU-a", 93, 5, 40, 250}}}});
  for (const char* count :
       {"\"id\":3", "\"rank\":1", "\"pid\":10", "\"memory_bytes\":4096", "\"processes\":2",
        "\"busy_percent\":93", "\"memory_used\":5", "\"memory_total\":40"}) {
    for (const char* more : {"e300", ".5"}) {
      std::string bad = good;
      ASSERT_NE(bad.find(count), std::string::npos) << count;
      bad.insert(bad.find(count) + std::strlen(count), more);
      EXPECT_FALSE(usage_from_json(bad).ok()) << bad;
    }
  }
  EXPECT_TRUE(usage_from_json(good).ok());
}

TEST(UsageText, PrometheusNamesJobMemberAndGpu) {
  nlohmann::json status = {
      {"job", "a\"b"}, {"generation", 2}, {"size", 1}, {"members", nlohmann::json::array()}};
  auto member = nlohmann::json::parse(
      usage_json({{{3, 1, 10, {}, {}}, {1.5, 4096, 2}, 0.75, {{"GPU-a", 93, 5, 40, 250}}}}));
  status["members"] = member["members"];
  status["members"][0]["loss"] = nullptr;
  const std::string text = prometheus_text(status.dump());
  EXPECT_THAT(text, HasSubstr("# TYPE regroup_member_cpu_seconds_total counter\n"));
  EXPECT_THAT(text, HasSubstr("regroup_generation{job=\"a\\\"b\"} 2\n"));
  EXPECT_THAT(
      text,
      HasSubstr("regroup_member_memory_bytes{job=\"a\\\"b\",member=\"3\",rank=\"1\"} 4096\n"));
  EXPECT_THAT(
      text,
      HasSubstr(
          "regroup_gpu_busy_percent{job=\"a\\\"b\",member=\"3\",rank=\"1\",gpu=\"GPU-a\"} 93\n"));
  EXPECT_THAT(text, testing::Not(HasSubstr("regroup_member_loss{")));
  EXPECT_EQ(prometheus_text("no json"), "");
}

TEST(UsageText, PrometheusShowsTheDataPlaneAsALabel) {
  EXPECT_THAT(prometheus_text(R"({"job": "j", "plane": "staged"})"),
              HasSubstr("# TYPE regroup_plane_info gauge\n"
                        "regroup_plane_info{job=\"j\",plane=\"staged\"} 1\n"));
  EXPECT_THAT(prometheus_text(R"({"job": "j", "plane": null})"),
              testing::Not(HasSubstr("regroup_plane_info")));
}

TEST(UsageText, PrometheusShowsTheProgressThatIsKnown) {
  const nlohmann::json status = {{"job", "j"},
                                 {"progress", {{"epoch", 3}, {"loss", 0.25}, {"step", 70}}}};
  const std::string text = prometheus_text(status.dump());
  EXPECT_THAT(text, HasSubstr("regroup_epoch{job=\"j\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("regroup_loss{job=\"j\"} 0.25\n"));
  EXPECT_THAT(text, testing::Not(HasSubstr("regroup_epochs")));
  EXPECT_THAT(prometheus_text(R"({"progress": 3})"), testing::Not(HasSubstr("regroup_epoch")));
}

TEST(UsageText, PrometheusShowsTheParameterServer) {
  const nlohmann::json status = {
      {"job", "j"},
      {"parameter_server",
       {{"updates", 81920},
        {"restarts", 1},
        {"ranges", 16},
        {"ranges_waiting", 7},
        {"store", {{"tables", 5}, {"free", 6}, {"log", 7}}},
        {"view", 3},
        {"step", 17},
        {"leaves_taken_over", 2},
        {"servers",
         {{{"server", 0}, {"ranges", 9}, {"updates", 5}}, {{"server", 1}, {"ranges", 7}}}},
        {"clocks",
         {{{"client", 3}, {"name", "worker 2"}, {"clock", 12}, {"held_up_others", 0.5}}}}}}};
  const std::string text = prometheus_text(status.dump());
  EXPECT_THAT(text, HasSubstr("# TYPE regroup_ps_updates_total counter\n"));
  EXPECT_THAT(text, HasSubstr("regroup_ps_updates_total{job=\"j\"} 81920\n"));
  EXPECT_THAT(text, HasSubstr("regroup_ps_restarts_total{job=\"j\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("regroup_ps_view{job=\"j\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("regroup_ps_ranges{job=\"j\",state=\"served\"} 9\n"
                              "regroup_ps_ranges{job=\"j\",state=\"waiting\"} 7\n"));
  EXPECT_THAT(text, HasSubstr("regroup_ps_store_bytes{job=\"j\",kind=\"tables\"} 5\n"
                              "regroup_ps_store_bytes{job=\"j\",kind=\"free\"} 6\n"
                              "regroup_ps_store_bytes{job=\"j\",kind=\"log\"} 7\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE regroup_ps_server_ranges gauge\n"
                              "regroup_ps_server_ranges{job=\"j\",server=\"0\"} 9\n"
                              "regroup_ps_server_ranges{job=\"j\",server=\"1\"} 7\n"));
  EXPECT_THAT(text, HasSubstr("regroup_ps_server_updates_total{job=\"j\",server=\"0\"} 5\n"));
  EXPECT_THAT(text, HasSubstr("regroup_ps_step{job=\"j\"} 17\n"));
  EXPECT_THAT(text, HasSubstr("regroup_ps_leaves_taken_over_total{job=\"j\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE regroup_ps_clock gauge\n"
                              "regroup_ps_clock{job=\"j\",client=\"3\",name=\"worker 2\"} 12\n"));
  EXPECT_THAT(text, HasSubstr("regroup_ps_held_up_others_seconds_total{job=\"j\",client=\"3\","
                              "name=\"worker 2\"} 0.5\n"));
  EXPECT_THAT(prometheus_text(R"({"job": "j"})"), testing::Not(HasSubstr("regroup_ps_")));
  EXPECT_THAT(
      prometheus_text(
          R"({"job": "j", "parameter_server": {"servers": [{"server": 0, "host": "b", "ranges": 2}]}})"),
      HasSubstr("regroup_ps_server_ranges{job=\"j\",server=\"0\",host=\"b\"} 2\n"));
}

TEST_F(UsageTest, ReporterWritesLogAndStatusOfLivingProcesses) {
  boost::asio::io_context loop(1);
  UsageOptions options;
  options.log = root_ / "usage.csv";
  options.status_file = root_ / "usage";
  options.every = std::chrono::milliseconds(5);
  std::string said;
  UsageReporter reporter(
      loop, options,
      [] {
        return std::vector<UsageTarget>{{7, 0, ::getpgrp(), {}, {}}};
      },
      [&said](const std::string& text) { said = text; });
  ASSERT_TRUE(reporter.start().ok());
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!fs::exists(options.status_file) && std::chrono::steady_clock::now() < until)
    loop.run_one();
  std::ifstream file(options.status_file);
  const auto report = nlohmann::json::parse(file);
  EXPECT_EQ(report["members"][0]["id"], 7);
  EXPECT_GT(report["members"][0]["memory_bytes"], 0);
  std::ifstream log(options.log);
  std::string line;
  std::getline(log, line);
  EXPECT_EQ(line + "\n", usage_csv_header());
  EXPECT_TRUE(std::getline(log, line));
  EXPECT_EQ(said, "");
}

TEST_F(UsageTest, FaultsOfAGpuReachTheStatusAndAreSaidOnce) {
  boost::asio::io_context loop(1);
  UsageOptions options;
  options.every = std::chrono::milliseconds(5);
  options.host = "here";
  int reports = 0;
  std::string report;
  options.tell = [&](const std::string& json) { report = json, ++reports; };
  options.read_gpu = [](const std::string& uuid) -> base::Result<GpuReading> {
    GpuReading reading{{uuid, 1, 2, 3, 4}, {}};
    if (uuid == "GPU-0") reading.use.faults = {"two errors", "too hot"};
    return reading;
  };
  std::vector<std::string> said;
  UsageReporter reporter(
      loop, options,
      [] {
        return std::vector<UsageTarget>{{7, 0, ::getpgrp(), {}, {"GPU-0", "GPU-1"}}};
      },
      [&said](const std::string& text) { said.push_back(text); });
  ASSERT_TRUE(reporter.start().ok());
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (reports < 3 && std::chrono::steady_clock::now() < until) loop.run_one();
  EXPECT_THAT(said,
              testing::ElementsAre("GPU GPU-0 of member 7 on host here is not healthy: two errors",
                                   "GPU GPU-0 of member 7 on host here is not healthy: too hot"));
  const auto samples = usage_from_json(report);
  ASSERT_TRUE(samples.ok());
  EXPECT_THAT(samples->at(0).gpus.at(0).faults, testing::ElementsAre("two errors", "too hot"));
  EXPECT_THAT(samples->at(0).gpus.at(1).faults, testing::IsEmpty());
  const auto members = nlohmann::json::parse(report)["members"];
  EXPECT_EQ(gpu_fault_lines(members),
            "GPU GPU-0 of member 7: two errors\nGPU GPU-0 of member 7: too hot\n");
  const nlohmann::json status = {{"job", "j"}, {"members", members}};
  EXPECT_THAT(prometheus_text(status.dump()),
              testing::ContainsRegex(
                  "regroup_gpu_faults[{]job=\"j\",member=\"7\",[^}]*gpu=\"GPU-0\"[}] 2\n"
                  "regroup_gpu_faults[{]job=\"j\",member=\"7\",[^}]*gpu=\"GPU-1\"[}] 0\n"));
}

TEST_F(UsageTest, ReporterIncludesOtherHosts) {
  boost::asio::io_context loop(1);
  UsageOptions options;
  options.status_file = root_ / "usage";
  options.every = std::chrono::milliseconds(5);
  options.host = "here";
  std::string report;
  options.tell = [&report](const std::string& json) { report = json; };
  UsageReporter reporter(
      loop, options,
      [] {
        return std::vector<UsageTarget>{{7, 0, ::getpgrp(), {}, {}}};
      },
      [](const std::string&) {});
  ASSERT_TRUE(reporter.start().ok());
  const auto own = [](proto::MemberId member) { return member == 8; };
  reporter.add("there",
               usage_json({{{8, 1, 10, {}, {}}, {1.5, 4096, 2}, 0.75, {}},
                           {{7, 0, 10, {}, {}}, {9, 9, 9}, 9, {}}}),
               own);
  reporter.add("broken", "no json", own);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!fs::exists(options.status_file) && std::chrono::steady_clock::now() < until)
    loop.run_one();
  std::ifstream file(options.status_file);
  const auto all = nlohmann::json::parse(file)["members"];
  EXPECT_EQ(all.size(), 2U);  // a member that does not live on the reporting host is left out
  EXPECT_EQ(all[0]["host"], "here");
  EXPECT_EQ(all[1]["host"], "there");
  EXPECT_EQ(all[1]["id"], 8);
  EXPECT_EQ(nlohmann::json::parse(report)["members"].size(), 1U);  // its own only
}

TEST_F(UsageTest, ReporterRefusesALogThatCannotBeOpened) {
  boost::asio::io_context loop(1);
  UsageOptions options;
  options.log = root_ / "none" / "usage.csv";
  UsageReporter reporter(
      loop, options, [] { return std::vector<UsageTarget>(); }, [](const std::string&) {});
  EXPECT_THAT(reporter.start().message(), HasSubstr("none/usage.csv"));
}

}  // namespace
}  // namespace regroup::metrics
