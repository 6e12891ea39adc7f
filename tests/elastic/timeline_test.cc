// The file of --timeline: whose events it has, and what becomes of a file that cannot be written.
#include "elastic/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace regroup::elastic {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class TimelineTest : public ::testing::Test {
 protected:
  TimelineTest() {
    std::string name = (std::filesystem::temp_directory_path() / "timeline_XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~TimelineTest() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] std::string file() const { return (folder_ / "t.json").string(); }
  static std::string text(const std::string& path) {
    std::ostringstream out;
    out << std::ifstream(path).rdbuf();
    return out.str();
  }
  std::filesystem::path folder_;
};

TEST_F(TimelineTest, MembersOfAJobShareAFileAndAnotherJobBeginsAnew) {
  for (const proto::MemberId member : {3U, 4U}) {
    Timeline timeline(file(), "a", 0, member);
    TimelineSpan span(&timeline, "step 1", R"("epoch":0)");
    timeline.begin("shard 2");
  }
  const std::string both = text(file());
  EXPECT_THAT(both,
              StartsWith("[\n{\"name\":\"job\",\"ph\":\"M\",\"pid\":0,\"args\":{\"job\":\"a\""));
  for (const char* member : {"3", "4"}) {
    const std::string track = std::string(",\"pid\":") + member + ",\"tid\":0";
    EXPECT_THAT(both, HasSubstr(track + ",\"args\":{\"epoch\":0}},\n"));
  }
  std::size_t begins = 0;
  std::size_t ends = 0;
  for (std::size_t at = 0; (at = both.find("\"ph\":\"B\"", at)) != std::string::npos; ++at)
    ++begins;
  for (std::size_t at = 0; (at = both.find("\"ph\":\"E\"", at)) != std::string::npos; ++at) ++ends;
  EXPECT_EQ(begins, 4U);
  EXPECT_EQ(ends, 4U);  // a span ends those within it
  { Timeline timeline(file(), "b", 0, 3); }
  EXPECT_THAT(text(file()), Not(HasSubstr("step 1")));
  { Timeline timeline(file(), "b", 2, 3); }
  EXPECT_THAT(text(file() + ".2"), StartsWith("[\n"));
}

// Waits until the file has `what`: flush() alone waits 10 s at most.
void await(Timeline& timeline, const std::string& path, const std::string& what) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::chrono::steady_clock::now() < end) {
    timeline.flush();
    std::ostringstream found;
    found << std::ifstream(path).rdbuf();
    if (found.str().find(what) != std::string::npos) return;
  }
  FAIL() << "the file has no " << what;
}

// A SIGKILL ends a write between two pages.
TEST_F(TimelineTest, NoLineLiesInTwoPagesOfTheFile) {
  constexpr std::size_t kPage = 4096;
  constexpr int kSpans = 1000;
  const std::string args = R"("why":")" + std::string(300, 'x') + '"';
  Timeline timeline(file(), "a", 0, 1);
  for (int i = 0; i < kSpans; ++i) TimelineSpan(&timeline, "span", args);
  timeline.begin("the last one");
  await(timeline, file(), "the last one");
  const std::string found = text(file());
  int lines = 0;
  for (std::size_t at = 0; at < found.size();) {
    const std::size_t end = found.find('\n', at);
    ASSERT_NE(end, std::string::npos);
    if (end > at) {
      ++lines;
      EXPECT_EQ(at / kPage, end / kPage) << found.substr(at, end - at);
    }
    at = end + 1;
  }
  EXPECT_EQ(lines, 2 + 2 + 2 * kSpans + 1);  // bracket and job, two of the track, the spans
  EXPECT_GT(found.size(), 20 * kPage);
}

TEST_F(TimelineTest, ALineThatIsLongerThanAPageIsWritten) {
  Timeline timeline(file(), "a", 0, 1);
  timeline.begin("long", R"("why":")" + std::string(10000, 'x') + '"');
  timeline.begin("the last one");
  await(timeline, file(), "the last one");
  EXPECT_THAT(text(file()), HasSubstr(std::string(10000, 'x') + "\"}},\n"));
}

TEST_F(TimelineTest, AProcessOutsideAJobBeginsAnew) {
  {
    Timeline first(file(), "", 0, 0);
    first.begin("of the first run");
    await(first, file(), "of the first run");
  }
  Timeline second(file(), "", 0, 0);
  second.begin("of the second run");
  await(second, file(), "of the second run");
  EXPECT_THAT(text(file()), Not(HasSubstr("of the first run")));
}

TEST_F(TimelineTest, SpansThatOverlapHaveNumbers) {
  Timeline timeline(file(), "a", 0, 4);
  const auto first = timeline.begin_overlapping("send", R"("bytes":8)");
  const auto second = timeline.begin_overlapping("send");
  EXPECT_NE(first, second);
  timeline.end_overlapping(first, "send");
  timeline.end_overlapping(second, "send");
  timeline.begin("the last one");
  await(timeline, file(), "the last one");
  const std::string found = text(file());
  for (const char* kind : {"b", "e"}) {
    for (const auto span : {first, second})
      EXPECT_THAT(found,
                  HasSubstr("{\"name\":\"send\",\"cat\":\"regroup\",\"ph\":\"" + std::string(kind) +
                            "\",\"id\":\"4." + std::to_string(span) + "\",\"ts\":"));
  }
}

TEST_F(TimelineTest, AFileThatCannotBeWrittenIsSaidOnceAndHoldsNobodyUp) {
  const std::string fifo = (folder_ / "fifo").string();
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  for (const std::string& path : {fifo, folder_.string() + "/none/t.json"}) {
    ::testing::internal::CaptureStderr();
    {
      Timeline timeline(path, "a", 0, 0);
      timeline.flush();
      for (int i = 0; i < 3; ++i) TimelineSpan span(&timeline, "step");
    }
    EXPECT_THAT(
        ::testing::internal::GetCapturedStderr(),
        ::testing::MatchesRegex("regroup: timeline: [^\n]*; the training goes on without\n"));
  }
}

TEST(TimelineText, IsThatOfJson) {
  EXPECT_EQ(json_string("a\"b\\c\nd\x7f\xc3"), R"("a\"b\\c\u000ad??")");
}

}  // namespace
}  // namespace regroup::elastic
