// The journal survives a crash at any byte of its last record.
#include "launcher/job/journal.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

namespace regroup::job {
namespace {

proto::World world(proto::Generation generation) {
  proto::World out;
  out.generation = generation;
  out.shards = 4;
  out.members = {{0, {0, 0}, false, 0}, {1, {0, 1}, true, 5}};
  out.plan = {{0, 0}, {0, 0}, {0, 1}, {0, 1}};
  out.why = "generation " + std::to_string(generation);
  return out;
}

membership::Intent intent(std::uint32_t target) {
  return {
      base::TimePoint(std::chrono::nanoseconds(12345)),
      target,
      target - 1,
      2,
      9,
      7,
      target - 2,
      {{7, membership::MemberState::kLost, false}, {9, membership::MemberState::kActive, true}}};
}

membership::FailureStreak failures() {
  return {.failure = {.member = 5,
                      .kind = "OSError",
                      .place = "train.py:6",
                      .message = "no 'log'",
                      .trace = 9},
          .what = "OSError at train.py:6",
          .at = 1234567890123,
          .slots = {0, 3},
          .members = {4, 2, 5},
          .length = 3,
          .launches = 2,
          .passed_on = true};
}

class JournalTest : public testing::Test {
 protected:
  JournalTest() {
    char name[] = "/tmp/journal-XXXXXX";
    path_ = std::string(::mkdtemp(name)) + "/journal";
  }
  ~JournalTest() override {
    std::filesystem::remove_all(std::filesystem::path(path_).parent_path());
  }

  void append(const membership::JournalEntry& entry) {
    auto journal = JournalFile::open(path_);
    ASSERT_TRUE(journal.ok()) << journal.status().to_string();
    ASSERT_TRUE(journal->append(entry).ok());
  }
  void append(proto::Generation generation) { append(world(generation)); }
  std::string path_;
};

TEST_F(JournalTest, IsEmptyAtFirst) {
  auto journal = JournalFile::open(path_);
  ASSERT_TRUE(journal.ok());
  EXPECT_FALSE(journal->past().world.has_value());
  EXPECT_FALSE(journal->past().intent.has_value());
  EXPECT_TRUE(journal->past().sentences.empty());
}

TEST_F(JournalTest, GivesTheNewestWorldBack) {
  for (proto::Generation g = 1; g <= 5; ++g) append(g);
  auto journal = JournalFile::open(path_);
  ASSERT_TRUE(journal.ok());
  EXPECT_EQ(journal->past().world, world(5));
}

TEST_F(JournalTest, GivesTheNewestIntentAndTheLastSentencesBack) {
  const auto at = [](int n) { return base::TimePoint(std::chrono::seconds(n)); };
  for (int n = 1; n <= 25; ++n) {
    append(membership::JobEvent{at(n), n == 25 ? "" : "sentence " + std::to_string(n)});
    append(intent(static_cast<std::uint32_t>(n)));
  }
  append(1);
  auto journal = JournalFile::open(path_);
  ASSERT_TRUE(journal.ok());
  EXPECT_EQ(journal->past().intent, intent(25));
  ASSERT_EQ(journal->past().sentences.size(), membership::kMostSentences);
  EXPECT_EQ(journal->past().sentences.front(), (membership::JobEvent{at(6), "sentence 6"}));
  EXPECT_EQ(journal->past().sentences.back(), (membership::JobEvent{at(25), ""}));
}

TEST_F(JournalTest, GivesTheNewestRowOfFailuresBack) {
  append(membership::FailureStreak{.what = "exited with status 3", .length = 1});
  append(failures());
  append(1);
  auto journal = JournalFile::open(path_);
  ASSERT_TRUE(journal.ok());
  EXPECT_EQ(journal->past().failures, failures());
}

TEST_F(JournalTest, GivesTheNewestRefusedGpusBack) {
  membership::RefusedDevices refused{{{.node = 1, .gpu = "GPU-1", .member = 3, .why = "old"}}};
  append(refused);
  refused.all[0] = {2, "GPU-2", 4, 5, true, "it has wrong bits"};
  refused.all.push_back({0, "", 1, 2, false, ""});
  append(refused);
  append(1);
  EXPECT_EQ(JournalFile::open(path_)->past().refused, refused);
  append(membership::RefusedDevices{});
  EXPECT_TRUE(JournalFile::open(path_)->past().refused.all.empty());
}

// The launcher reads it when the job's files are gone, and the coordinator may have died in a
// record.
TEST_F(JournalTest, SaysWhatOthersHaveWrittenSinceAlsoWithoutItsPath) {
  const auto held = JournalFile::open(path_);
  ASSERT_TRUE(held.ok());
  append(failures());
  std::ofstream(path_, std::ios::binary | std::ios::app) << "torn";
  std::filesystem::remove(path_);
  const auto past = held->written();
  ASSERT_TRUE(past.ok()) << past.status().message();
  EXPECT_EQ(past->failures, failures());
}

TEST_F(JournalTest, CutsATornRecordOffAtEveryByteAndGoesOn) {
  append(1);
  const auto one = std::filesystem::file_size(path_);
  append(2);
  const auto two = std::filesystem::file_size(path_);
  std::ifstream file(path_, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  for (auto size = one; size < two; ++size) {
    std::ofstream(path_, std::ios::binary) << bytes.substr(0, size);
    auto journal = JournalFile::open(path_);
    ASSERT_TRUE(journal.ok()) << journal.status().to_string();
    ASSERT_EQ(journal->past().world, world(1));
    ASSERT_EQ(std::filesystem::file_size(path_), one);
    ASSERT_TRUE(journal->append(world(3)).ok());
    ASSERT_EQ(JournalFile::open(path_)->past().world, world(3));
  }
}

TEST_F(JournalTest, RefusesDamageBeforeTheLastRecord) {
  append(1);
  const auto one = std::filesystem::file_size(path_);
  append(2);
  std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(one) - 5);
  file.put('\x5a');
  file.close();
  auto journal = JournalFile::open(path_);
  EXPECT_EQ(journal.code(), base::Code::kDataLoss);
  EXPECT_NE(journal.status().message().find(path_), std::string::npos);
}

TEST_F(JournalTest, RefusesEveryFlippedBit) {
  append(1);
  append(intent(3));
  append(membership::JobEvent{{}, "why"});
  append(failures());
  std::ifstream file(path_, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    std::ofstream(path_, std::ios::binary) << flipped;
    ASSERT_FALSE(JournalFile::open(path_).ok()) << "bit " << bit;
    ASSERT_EQ(std::filesystem::file_size(path_), bytes.size());
  }
}

// Of a file that may grow no more the kernel takes what fits, as of a disk that is full.
TEST_F(JournalTest, ARecordThatDoesNotFitIsCutOffAndOthersFollow) {
  append(1);
  auto journal = JournalFile::open(path_);
  ASSERT_TRUE(journal.ok());
  const auto whole = std::filesystem::file_size(path_);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit tight{whole + 20, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  const base::Status status =
      journal->append(membership::JobEvent{{}, "too long for what is left"});
  EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  (void)std::signal(SIGXFSZ, handler);
  EXPECT_EQ(status.message().substr(0, 6), "write(") << status.message();
  EXPECT_EQ(std::filesystem::file_size(path_), whole);
  ASSERT_TRUE(journal->append(world(2)).ok());
  const auto successor = JournalFile::open(path_);
  ASSERT_TRUE(successor.ok()) << successor.status().message();
  EXPECT_EQ(successor->past().world, world(2));
  EXPECT_TRUE(successor->past().sentences.empty());
}

TEST_F(JournalTest, NamesAnotherVersion) {
  append(1);
  std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(4);
  file.put('\x07');
  file.close();
  EXPECT_EQ(JournalFile::open(path_).status().message(),
            "journal " + path_ + ": version 7, expected 6");
}

// Of the build before this one: it held nothing but Worlds.
TEST_F(JournalTest, RefusesVersion1) {
  std::ofstream(path_, std::ios::binary) << std::string("RGRJ\1\0\0\0", 8);
  auto journal = JournalFile::open(path_);
  EXPECT_EQ(journal.code(), base::Code::kInvalidArgument);
  EXPECT_EQ(journal.status().message(), "journal " + path_ + ": version 1, expected 6");
}

TEST_F(JournalTest, RefusesWhatIsWholeAndMakesNoSense) {
  auto bad_world = world(1);
  bad_world.plan.pop_back();
  auto bad_intent = intent(3);
  bad_intent.marks[0].state = membership::MemberState::kGone;
  const std::pair<membership::JournalEntry, const char*> cases[] = {
      {bad_world, "malformed World 1"}, {bad_intent, "malformed intent"}};
  for (const auto& [entry, expected] : cases) {
    std::filesystem::remove(path_);
    append(entry);
    auto journal = JournalFile::open(path_);
    EXPECT_EQ(journal.code(), base::Code::kDataLoss);
    EXPECT_NE(journal.status().message().find(expected), std::string::npos)
        << journal.status().message();
  }
}

TEST_F(JournalTest, NamesAFileThatCannotBeOpened) {
  auto journal = JournalFile::open("/nonexistent/journal");
  EXPECT_EQ(journal.code(), base::Code::kNotFound);
  EXPECT_EQ(journal.status().message(), "open(/nonexistent/journal): No such file or directory");
}

}  // namespace
}  // namespace regroup::job
