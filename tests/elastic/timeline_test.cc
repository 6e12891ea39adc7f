// The file of --timeline: whose events it has, and what becomes of a file that cannot be written.
#include "elastic/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

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
