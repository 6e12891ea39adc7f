// The file of a ledger: who writes which line, what is cut, what is kept aside, what is refused.
#include "elastic/ledger.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "base/status.h"

namespace regroup::elastic {
namespace {

namespace fs = std::filesystem;
using base::Code;

constexpr LedgerHeader kHeader{.seed = 7, .samples = 40, .batch = 4, .epochs = 2, .shards = 2};

LedgerHeader header_of(const std::string& job) {
  LedgerHeader header = kHeader;
  header.job = job;
  return header;
}

LedgerLine line_of(proto::Step step) {
  return {.step = step,
          .epoch = (step - 1) / 10,
          .samples = 4,
          .leaves = {{.samples = 2, .crc = static_cast<std::uint32_t>(step)},
                     {.samples = 2, .crc = 0xfeedf00d}}};
}

class LedgerTest : public testing::Test {
 protected:
  LedgerTest() {
    std::string name = (fs::temp_directory_path() / "ledger_XXXXXX").string();
    root_ = ::mkdtemp(name.data());
    folder_ = root_ / "a" / "b";
  }
  ~LedgerTest() override { fs::remove_all(root_); }

  [[nodiscard]] Ledger ledger(const std::string& job = "j") const {
    return Ledger(folder_.string(), header_of(job));
  }
  [[nodiscard]] fs::path path(const std::string& more = "") const {
    return folder_ / (std::string(kLedgerFile) + more);
  }
  [[nodiscard]] std::string text(const std::string& more = "") const {
    std::ostringstream out;
    out << std::ifstream(path(more)).rdbuf();
    return out.str();
  }
  void append(const std::string& what) const { std::ofstream(path(), std::ios::app) << what; }
  // What the ledger of these steps has in it.
  [[nodiscard]] static std::string whole(proto::Step first, proto::Step last,
                                         const std::string& job = "j") {
    LedgerHeader header = header_of(job);
    header.first = first;
    std::string out = text_of(header);
    for (proto::Step step = first; step <= last; ++step) out += text_of(line_of(step));
    return out;
  }
  // A member commits steps, and writes if it is rank 0.
  static void commit(Ledger& ledger, proto::Step first, proto::Step last, bool writes = true) {
    for (proto::Step step = first; step <= last; ++step) {
      ledger.keep(line_of(step));
      if (!writes) continue;
      ASSERT_TRUE(ledger.write_through(step).ok());
    }
  }
  // A run of its own that commits steps 1 to `last`.
  void run(proto::Step last, const std::string& job = "j") const {
    Ledger first = ledger(job);
    ASSERT_TRUE(first.write_through(0).ok());
    commit(first, 1, last);
  }

  fs::path root_, folder_;
};

TEST_F(LedgerTest, WritesALinePerStep) {
  run(3);
  EXPECT_EQ(text(), whole(1, 3));
  const std::string first =
      "{\"step\":1,\"epoch\":0,\"substep\":0,\"n\":4,"
      "\"leaves\":[[2,\"00000001\"],[2,\"feedf00d\"]]}\n";
  EXPECT_EQ(text().substr(text().find('\n') + 1, first.size()), first);
}

TEST_F(LedgerTest, TheNextRank0WritesTheLineThatADeadOneDidNot) {
  run(3);
  for (const proto::Step written : {3, 4}) {  // it died before its line of step 4, or after it
    Ledger heir = ledger();
    commit(heir, 3, 4, /*writes=*/false);
    if (written == 4) append(text_of(line_of(4)));
    ASSERT_TRUE(heir.write_through(4).ok());
    commit(heir, 5, 5);
    EXPECT_EQ(text(), whole(1, 5));
    fs::resize_file(path(), whole(1, 3).size());
  }
}

// At every byte of its line.
TEST_F(LedgerTest, TheNextRank0CutsATornLine) {
  run(3);
  const std::string line = text_of(line_of(4));
  for (std::size_t length = 0; length <= line.size(); ++length) {
    fs::resize_file(path(), whole(1, 3).size());
    append(line.substr(0, length));
    Ledger heir = ledger();
    commit(heir, 4, 4, /*writes=*/false);
    ASSERT_TRUE(heir.write_through(4).ok());
    ASSERT_EQ(text(), whole(1, 4)) << length;
  }
}

// The member that was rank 0 does not know yet that it is excluded.
TEST_F(LedgerTest, AMemberThatIsExcludedDoesNoHarm) {
  Ledger old = ledger();
  ASSERT_TRUE(old.write_through(0).ok());
  commit(old, 1, 3);
  old.keep(line_of(4));
  Ledger heir = ledger();
  heir.keep(line_of(4));
  ASSERT_TRUE(heir.write_through(4).ok());
  commit(heir, 5, 6);
  ASSERT_TRUE(old.write_through(4).ok());
  EXPECT_EQ(text(), whole(1, 6));
  commit(heir, 7, 7);
  EXPECT_EQ(text(), whole(1, 7));
}

TEST_F(LedgerTest, AMemberThatIsRank0AgainReadsWhatOthersWrote) {
  Ledger one = ledger();
  Ledger two = ledger();
  ASSERT_TRUE(one.write_through(0).ok());
  commit(one, 1, 2);
  one.close();
  commit(two, 2, 4);
  commit(one, 3, 4, /*writes=*/false);
  commit(one, 5, 5);
  EXPECT_EQ(text(), whole(1, 5));
}

TEST_F(LedgerTest, AJobThatResumesCutsLinesOfLaterSteps) {
  run(9, "first");
  for (const std::string torn : {"", "{\"step\":10,"}) {
    append(torn);
    Ledger next = ledger("second");
    ASSERT_TRUE(next.write_through(6).ok());
    EXPECT_EQ(text(), whole(1, 6, "first"));
    commit(next, 7, 9);
    EXPECT_EQ(text(), whole(1, 9, "first"));
  }
}

TEST_F(LedgerTest, FindsALineFarFromTheEnd) {
  run(2000, "first");
  Ledger next = ledger("second");
  ASSERT_TRUE(next.write_through(3).ok());
  EXPECT_EQ(text(), whole(1, 3, "first"));
}

TEST_F(LedgerTest, AJobThatResumesMayHaveMoreEpochs) {
  run(4, "first");
  LedgerHeader longer = header_of("second");
  longer.epochs = 3;
  Ledger next(folder_.string(), longer);
  ASSERT_TRUE(next.write_through(4).ok());
  commit(next, 5, 5);
  longer.job = "first";
  EXPECT_EQ(text(), text_of(longer) + whole(1, 5).substr(whole(1, 0).size()));
}

TEST_F(LedgerTest, AJobThatResumesWithoutAFileBeginsOne) {
  Ledger next = ledger();
  ASSERT_TRUE(next.write_through(6).ok());
  commit(next, 7, 8);
  EXPECT_EQ(text(), whole(7, 8));
}

// Of a machine that crashed, or a folder that hosts do not share.
TEST_F(LedgerTest, MissingLinesBeginANewFile) {
  run(4, "first");
  Ledger next = ledger("second");
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(next.write_through(6).ok());
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "regroup: ledger: " + path().string() +
                ": it ends with step 4; a new file begins with step 7, the old one is " +
                path(".1").string() + "\n");
  commit(next, 7, 8);
  EXPECT_EQ(text(), whole(7, 8, "second"));
  EXPECT_EQ(text(".1"), whole(1, 4, "first"));
  Ledger heir = ledger("third");
  commit(heir, 11, 11, /*writes=*/false);
  ASSERT_TRUE(heir.write_through(11).ok());
  EXPECT_EQ(text(), whole(11, 11, "third"));
  EXPECT_EQ(text(".2"), whole(7, 8, "second"));
}

TEST_F(LedgerTest, LinesThatBeginLaterAreKeptAside) {
  Ledger late = ledger("first");
  ASSERT_TRUE(late.write_through(6).ok());
  commit(late, 7, 8);
  Ledger next = ledger("second");
  ASSERT_TRUE(next.write_through(2).ok());
  EXPECT_EQ(text(), whole(3, 2, "second"));
  EXPECT_EQ(text(".1"), whole(7, 8, "first"));
}

TEST_F(LedgerTest, ANewRunRefusesTheFileOfAnother) {
  run(4, "first");
  const auto status = ledger("second").write_through(0);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "ledger: " + path().string() +
                ": it is of another run (job \"first\"); give another folder with --ledger, or "
                "resume that run from its checkpoint");
  EXPECT_EQ(text(), whole(1, 4, "first"));
  EXPECT_EQ(ledger("").write_through(0).code(), Code::kInvalidArgument);
}

TEST_F(LedgerTest, ARunWithoutALauncherHasNoJobToCompare) {
  run(4, "");
  EXPECT_EQ(ledger("").write_through(0).code(), Code::kInvalidArgument);
  EXPECT_TRUE(ledger("").write_through(4).ok());
}

TEST_F(LedgerTest, ANewRunTakesAFileWithoutLines) {
  run(0, "first");
  Ledger next = ledger("second");
  ASSERT_TRUE(next.write_through(0).ok());
  EXPECT_EQ(text(), whole(1, 0, "second"));
  fs::resize_file(path(), 30);  // the header itself is torn
  ASSERT_TRUE(ledger("third").write_through(0).ok());
  EXPECT_EQ(text(), whole(1, 0, "third"));
}

TEST_F(LedgerTest, AnotherTrainingOfTheSameJobBeginsANewFile) {
  run(3);
  ::testing::internal::CaptureStderr();
  run(2);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("it is of an earlier training of this "
                                                          "job; a new file begins with step 1"),
            std::string::npos);
  EXPECT_EQ(text(), whole(1, 2));
  EXPECT_EQ(text(".1"), whole(1, 3));
}

TEST_F(LedgerTest, RefusesAFileOfOtherThings) {
  fs::create_directories(folder_);
  for (const std::string other : {"notes\n", "notes", "{\"step\": 1}\n"}) {
    std::ofstream(path()) << other;
    const auto status = ledger().write_through(0);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << other;
    EXPECT_EQ(text(), other);
  }
}

TEST_F(LedgerTest, RefusesToResumeWhereTheTrainingDiffers) {
  run(4);
  LedgerHeader other = header_of("j");
  other.batch = 8;
  const auto status = Ledger(folder_.string(), other).write_through(4);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("batch_size 4, expected 8"), std::string::npos)
      << status.message();
}

// As on a full disk: the training goes on, and what is in the file is whole.
TEST_F(LedgerTest, AFullDiskEndsTheLedgerAndNotTheTraining) {
  Ledger full = ledger();
  ASSERT_TRUE(full.write_through(0).ok());
  commit(full, 1, 2);
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit limit{whole(1, 2).size() + 20, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &limit);
  ::testing::internal::CaptureStderr();
  commit(full, 3, 5);
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "regroup: ledger: write(" + path().string() +
                "): File too large; the ledger ends with step 2, the training goes on without\n");
  EXPECT_EQ(text(), whole(1, 2));
}

TEST_F(LedgerTest, AFolderThatCannotBeMadeEndsTheLedger) {
  std::ofstream(root_ / "a") << "a file";
  Ledger nowhere = ledger();
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(nowhere.write_through(0).ok());
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("the ledger ends with step 0"),
            std::string::npos);
  fs::remove(root_ / "a");
  fs::create_directories(path());  // in the file's place
  Ledger folder = ledger();
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(folder.write_through(0).ok());
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("Is a directory"), std::string::npos);
}

TEST_F(LedgerTest, ADamagedLineEndsTheLedger) {
  run(3);
  append("{\"step\":4}\n");
  Ledger heir = ledger();
  commit(heir, 4, 4, /*writes=*/false);
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(heir.write_through(4).ok());
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("is damaged: epoch is missing"),
            std::string::npos);
  EXPECT_EQ(text(), whole(1, 3) + "{\"step\":4}\n");
}

}  // namespace
}  // namespace regroup::elastic
