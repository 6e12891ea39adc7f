// The file of a ledger: who writes which line, what is cut, what is kept aside, what is refused.
#include "elastic/ledger.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "base/fd.h"
#include "base/file_lock.h"
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

class LedgerTest : public ::testing::Test {
 protected:
  LedgerTest() {
    std::string name = (fs::temp_directory_path() / "ledger_XXXXXX").string();
    root_ = ::mkdtemp(name.data());
    folder_ = root_ / "a" / "b";
  }
  ~LedgerTest() override { fs::remove_all(root_); }

  [[nodiscard]] Ledger ledger(const std::string& job = "j", bool excluded = false) const {
    return ledger(header_of(job), {.lock = base::Duration(0)}, excluded);
  }
  [[nodiscard]] Ledger ledger(LedgerHeader header, LedgerLimits limits,
                              bool excluded = false) const {
    return Ledger(
        folder_.string(), std::move(header), [excluded] { return excluded; }, limits);
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
    std::string out = text_with_room(header);
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

TEST_F(LedgerTest, FindsALineAmongLongOnes) {
  const auto long_line = [](proto::Step step) {
    LedgerLine line = line_of(step);
    line.leaves.resize(10'000, line.leaves[0]);  // 150 KB
    return line;
  };
  Ledger first = ledger("first");
  ASSERT_TRUE(first.write_through(0).ok());
  std::string expected = whole(1, 0, "first");
  for (proto::Step step = 1; step <= 5; ++step) {
    first.keep(long_line(step));
    ASSERT_TRUE(first.write_through(step).ok());
    if (step <= 2) expected += text_of(long_line(step));
  }
  first.close();
  append(text_of(long_line(6)).substr(0, 100'000));
  ASSERT_TRUE(ledger("second").write_through(2).ok());
  EXPECT_EQ(text(), expected);
}

TEST_F(LedgerTest, AJobThatResumesMayHaveMoreEpochs) {
  run(4, "first");
  struct stat before {};
  ASSERT_EQ(::stat(path().c_str(), &before), 0);
  LedgerHeader longer = header_of("second");
  longer.epochs = 1'000'000;
  Ledger next = ledger(longer, {});
  ASSERT_TRUE(next.write_through(4).ok());
  commit(next, 5, 5);
  longer.job = "first";
  EXPECT_EQ(text(), text_with_room(longer) + whole(1, 5).substr(whole(1, 0).size()));
  struct stat after {};
  ASSERT_EQ(::stat(path().c_str(), &after), 0);
  EXPECT_EQ(after.st_ino, before.st_ino) << "the lines are not copied";
}

TEST_F(LedgerTest, AHeaderWithoutRoomForMoreEpochsBeginsANewFile) {
  fs::create_directories(folder_);
  std::ofstream(path()) << text_of(header_of("first")) << text_of(line_of(1));
  LedgerHeader longer = header_of("second");
  longer.epochs = 3;  // as many digits as before
  EXPECT_TRUE(ledger(longer, {}).write_through(1).ok());
  EXPECT_FALSE(fs::exists(path(".1")));
  longer.epochs = 10;
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(ledger(longer, {}).write_through(1).ok());
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("its header has no room for 10 epochs; "
                                                          "a new file begins with step 2"),
            std::string::npos);
  EXPECT_TRUE(fs::exists(path(".1")));
}

// A scheduler starts a job again that it has stopped, with another id, and there is no checkpoint.
TEST_F(LedgerTest, AJobThatIsStartedAgainBeforeItsFirstCheckpointBeginsANewFile) {
  run(3, "first");
  ::testing::internal::CaptureStderr();
  run(2, "second");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "regroup: ledger: " + path().string() +
                ": it is of an earlier training (job \"first\"); a new file begins with step 1, "
                "the old one is " +
                path(".1").string() + "\n");
  EXPECT_EQ(text(), whole(1, 2, "second"));
  EXPECT_EQ(text(".1"), whole(1, 3, "first"));
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
  next.close();
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
  late.close();
  Ledger next = ledger("second");
  ASSERT_TRUE(next.write_through(2).ok());
  EXPECT_EQ(text(), whole(3, 2, "second"));
  EXPECT_EQ(text(".1"), whole(7, 8, "first"));
}

TEST_F(LedgerTest, ANewRunRefusesTheFileOfAnother) {
  run(4, "first");
  LedgerHeader other = header_of("second");
  other.seed = 8;
  const auto status = ledger(other, {}).write_through(0);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "ledger: " + path().string() +
                ": it is of another run (seed 7, expected 8); give another folder with --ledger, "
                "or resume that run from its checkpoint");
  EXPECT_EQ(text(), whole(1, 4, "first"));
}

TEST_F(LedgerTest, ARunWithoutALauncherHasNoJobToCompare) {
  run(4, "");
  EXPECT_TRUE(ledger("").write_through(4).ok());
  EXPECT_EQ(text(), whole(1, 4, ""));
  run(2, "");
  EXPECT_EQ(text(), whole(1, 2, ""));
  EXPECT_EQ(text(".1"), whole(1, 4, ""));
}

TEST_F(LedgerTest, ANewRunTakesAFileWithoutLines) {
  run(0, "first");
  Ledger next = ledger("second");
  ASSERT_TRUE(next.write_through(0).ok());
  EXPECT_EQ(text(), whole(1, 0, "second"));
  next.close();
  fs::resize_file(path(), 30);  // the header itself is torn
  ASSERT_TRUE(ledger("third").write_through(0).ok());
  EXPECT_EQ(text(), whole(1, 0, "third"));
}

TEST_F(LedgerTest, AnotherTrainingOfTheSameJobBeginsANewFile) {
  run(3);
  ::testing::internal::CaptureStderr();
  run(2);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("it is of an earlier training (job "
                                                          "\"j\"); a new file begins with step 1"),
            std::string::npos);
  EXPECT_EQ(text(), whole(1, 2));
  EXPECT_EQ(text(".1"), whole(1, 3));
}

// It opens the file only after the new rank 0 has written.
TEST_F(LedgerTest, AMemberThatIsExcludedCutsNoLinesOfTheNextRank0) {
  run(2);
  Ledger old = ledger();
  commit(old, 3, 3, /*writes=*/false);
  Ledger heir = ledger();
  commit(heir, 3, 6);
  ASSERT_TRUE(old.write_through(3).ok());
  EXPECT_EQ(text(), whole(1, 6));
  commit(heir, 7, 7);
  EXPECT_EQ(text(), whole(1, 7));
}

// The same, of a job that has just resumed: here the old member would cut the lines of an earlier
// attempt.
TEST_F(LedgerTest, AMemberThatIsExcludedCutsNothingWhereItsJobResumes) {
  run(9, "first");
  Ledger heir = ledger("second");
  ASSERT_TRUE(heir.write_through(6).ok());
  commit(heir, 7, 8);
  EXPECT_EQ(ledger("second", /*excluded=*/true).write_through(6).code(), Code::kRevoked);
  EXPECT_EQ(ledger("second", /*excluded=*/true).write_through(3).code(), Code::kRevoked);
  EXPECT_EQ(ledger("second", /*excluded=*/true).write_through(0).code(), Code::kRevoked);
  EXPECT_EQ(text(), whole(1, 8, "first"));
  EXPECT_FALSE(fs::exists(path(".1")));
  commit(heir, 9, 9);
  EXPECT_EQ(text(), whole(1, 9, "first"));
}

TEST_F(LedgerTest, AMemberThatIsExcludedRenamesNoFile) {
  Ledger heir = ledger();
  ASSERT_TRUE(heir.write_through(6).ok());
  commit(heir, 7, 8);
  Ledger old = ledger("j", /*excluded=*/true);
  old.keep(line_of(3));
  EXPECT_EQ(old.write_through(3).code(), Code::kRevoked);
  EXPECT_EQ(text(), whole(7, 8));
}

TEST_F(LedgerTest, TwoJobsDoNotWriteToOneFolder) {
  std::optional<Ledger> first(std::in_place, folder_.string(), header_of("first"),
                              [] { return false; });
  ASSERT_TRUE(first->write_through(0).ok());
  commit(*first, 1, 2);
  const auto status = ledger("second").write_through(0);
  EXPECT_EQ(status.code(), Code::kUnavailable);
  const std::string lock = (folder_ / kLedgerLock).string();
  EXPECT_EQ(status.message().find("ledger: " + path().string() +
                                  ": another job writes there: " + lock + ": job first (process "),
            0U)
      << status.message();
  EXPECT_EQ(text(), whole(1, 2, "first"));
  EXPECT_EQ(ledger("").write_through(2).code(), Code::kUnavailable);
  first.reset();
  EXPECT_TRUE(ledger("second").write_through(2).ok());
}

TEST_F(LedgerTest, AJobWaitsForTheEndOfAnother) {
  std::optional<Ledger> first(std::in_place, folder_.string(), header_of("first"),
                              [] { return false; });
  ASSERT_TRUE(first->write_through(0).ok());
  commit(*first, 1, 2);
  const auto a_minute = std::chrono::seconds(60);
  std::promise<void> waits;
  auto next = std::async(std::launch::async, [&] {
    const auto each_time = [&waits, said = false]() mutable {
      if (!std::exchange(said, true)) waits.set_value();
      return false;
    };
    return Ledger(folder_.string(), header_of("second"), each_time,
                  {.answer = a_minute, .lock = a_minute})
        .write_through(2);
  });
  ASSERT_EQ(waits.get_future().wait_for(a_minute), std::future_status::ready);
  first.reset();
  EXPECT_TRUE(next.get().ok());
}

// The old rank 0 of a job may hold the lock as long as it does not know that it is excluded.
TEST_F(LedgerTest, AMemberOfTheSameJobNeedsNoLockUntilItCanHaveIt) {
  std::optional<Ledger> old(std::in_place, folder_.string(), header_of("j"), [] { return false; });
  ASSERT_TRUE(old->write_through(0).ok());
  commit(*old, 1, 2);
  Ledger heir = ledger();
  commit(heir, 2, 3);
  old.reset();
  commit(heir, 4, 4);
  EXPECT_EQ(ledger("second").write_through(4).code(), Code::kUnavailable);
  heir.close();
  EXPECT_TRUE(ledger("second").write_through(4).ok());
  EXPECT_EQ(text(), whole(1, 4));
}

// A lease holds up whoever opens a file, as a hung file system does.
class Lease {
 public:
  explicit Lease(const fs::path& path) : file_(::open(path.c_str(), O_RDWR | O_CLOEXEC)) {
    std::signal(SIGIO, SIG_IGN);
    held_ = ::fcntl(file_.get(), F_SETLEASE, F_WRLCK) == 0;
  }
  [[nodiscard]] bool held() const { return held_; }
  void end() { EXPECT_EQ(::fcntl(file_.get(), F_SETLEASE, F_UNLCK), 0); }

 private:
  base::Fd file_;
  bool held_ = false;
};

TEST_F(LedgerTest, AFileSystemThatHangsEndsTheLedgerAndNotTheTraining) {
  run(9, "first");
  Lease lease(folder_ / kLedgerLock);
  ASSERT_TRUE(lease.held());
  ::testing::internal::CaptureStderr();
  {
    Ledger hung = ledger(header_of("second"), {.answer = std::chrono::milliseconds(50)});
    EXPECT_TRUE(hung.write_through(6).ok());
    commit(hung, 7, 8);
    EXPECT_EQ(::testing::internal::GetCapturedStderr(),
              "regroup: ledger: " + path().string() +
                  ": the file system has not answered for 0.05 s; the ledger ends with step 6, the "
                  "training goes on without\n");
  }
  lease.end();
  // The thread that was left behind goes on, and must not cut the lines of later steps. Its end is
  // seen by its lock: it has taken it, and its file is closed after that.
  const fs::path lock = folder_ / kLedgerLock;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  const auto owner = [&lock] {
    std::string text;
    std::getline(std::ifstream(lock) >> std::ws, text);
    return text;
  };
  while (!owner().starts_with("job second ") && std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  while (!base::FileLock::take(lock, "test").ok() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  EXPECT_EQ(text(), whole(1, 9, "first"));
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
  const auto status = ledger(other, {}).write_through(4);
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

// A file system of 16 KB in a mount namespace of the calling process. False: not permitted.
bool mount_small_disk(const fs::path& folder) {
  const auto user = std::to_string(::getuid());
  const auto group = std::to_string(::getgid());
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  std::ofstream("/proc/self/uid_map") << user + " " + user + " 1";
  std::ofstream("/proc/self/setgroups") << "deny";
  std::ofstream("/proc/self/gid_map") << group + " " + group + " 1";
  return ::mount("none", folder.c_str(), "tmpfs", 0, "size=16k") == 0 &&
         static_cast<bool>(std::ofstream(folder / "probe"));
}

using LedgerDeathTest = LedgerTest;

TEST_F(LedgerDeathTest, ADiskWithoutSpaceEndsTheLedgerAndNotTheTraining) {
  fs::create_directories(folder_);
  const pid_t probe = ::fork();
  if (probe == 0) ::_exit(mount_small_disk(folder_) ? 0 : 1);
  int status = 0;
  ASSERT_EQ(::waitpid(probe, &status, 0), probe);
  if (status != 0) GTEST_SKIP() << "this machine permits no mount of a tmpfs";
  const auto fill = [this] {
    if (!mount_small_disk(folder_)) ::_exit(2);
    Ledger full = ledger();
    if (!full.write_through(0).ok()) ::_exit(3);
    proto::Step step = 1;
    for (; step <= 1000; ++step) {
      full.keep(line_of(step));
      if (!full.write_through(step).ok()) ::_exit(4);
    }
    // The lines that are there are whole.
    const std::string found = text();
    const auto lines = static_cast<proto::Step>(std::ranges::count(found, '\n')) - 1;
    ::_exit(lines < 1000 && found == whole(1, lines) ? 0 : 5);
  };
  EXPECT_EXIT(fill(), ::testing::ExitedWithCode(0),
              "ledger.jsonl\\): No space left on device; the ledger ends with step [0-9]+, the "
              "training goes on without\n$");
}

TEST_F(LedgerTest, AFolderThatCannotBeMadeEndsTheLedger) {
  std::ofstream(root_ / "a") << "a file";
  Ledger nowhere = ledger();
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(nowhere.write_through(0).ok());
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("the ledger ends with step 0"),
            std::string::npos);
  for (const bool owes : {false, true}) {  // of a job that is at step 6
    Ledger later = ledger();
    if (owes) later.keep(line_of(6));
    ::testing::internal::CaptureStderr();
    EXPECT_TRUE(later.write_through(6).ok());
    EXPECT_NE(::testing::internal::GetCapturedStderr().find(owes ? "the ledger ends with step 5,"
                                                                 : "the ledger ends with step 6,"),
              std::string::npos);
  }
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
