// Bit flips: in every byte of a small checkpoint, and at random in a large one (REGROUP_TEST_FULL:
// 20,000). Each is found by verify(); and what is loaded all the same is what was written, or is
// refused.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/file_io.h"
#include "checkpoint/hdf5/factory.h"
#include "checkpoint/parallel.h"

namespace regroup::checkpoint {
namespace {

namespace fs = std::filesystem;

class Flips : public testing::Test {
 protected:
  Flips() {
    std::string name = (fs::temp_directory_path() / "flips-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    directory_ = name;
  }
  ~Flips() override {
    std::error_code error;
    fs::remove_all(directory_, error);
  }

  // A tensor of `rows` x 1,000, in two pieces, and some of those that are stored in other ways; by
  // two writers.
  void save(std::uint64_t rows) {
    std::mt19937_64 random(1);
    large_.resize(rows * 1000 * 4);
    for (auto& byte : large_) byte = static_cast<std::byte>(random());
    const auto store = hdf5::make_store(directory_);
    for (std::uint32_t writer = 0; writer < 2; ++writer) {
      CheckpointPart part;
      part.about.step = 1;
      part.about.job = "flips";
      part.uuid = "try1";
      part.writer = writer;
      part.writers = 2;
      const Box box = share_of_rows({rows, 1000}, writer, 2);
      const auto bytes = std::span<const std::byte>(large_);
      part.pieces.push_back({"w",
                             "float32",
                             {rows, 1000},
                             box,
                             bytes.subspan(box.start[0] * 4000, box.count[0] * 4000)});
      if (writer == 1) {
        part.pieces.push_back({"b", "bfloat16", {3}, whole({3}), bytes.first(6)});
        part.pieces.push_back({"s", "int64", {}, whole({}), bytes.first(8)});
        part.pieces.push_back({"none", "float32", {0, 4}, whole({0, 4}), {}});
      }
      ASSERT_TRUE(store->write(part).ok());
      if (writer == 1) {
        ASSERT_TRUE(store->commit(part).ok());
      }
    }
    path_ = directory_ + "/step-00000001";
    for (const auto& file : fs::directory_iterator(path_)) files_.push_back(file.path().string());
    std::ranges::sort(files_);
    ASSERT_EQ(files_.size(), 4U);
    ASSERT_TRUE(verify(path_).ok());
    ASSERT_EQ(load(), "all");
  }

  static void flip(const std::string& file, std::uint64_t at, int bit) {
    const base::Fd fd(::open(file.c_str(), O_RDWR | O_CLOEXEC));
    std::byte byte{};
    ASSERT_EQ(::pread(fd.get(), &byte, 1, static_cast<off_t>(at)), 1) << file;
    byte ^= static_cast<std::byte>(1 << bit);
    ASSERT_EQ(::pwrite(fd.get(), &byte, 1, static_cast<off_t>(at)), 1) << file;
  }

  // "all", or why not; a failure if bytes come that were not written.
  std::string load() {
    const auto opened = Checkpoint::open(path_);
    if (!opened.ok()) return opened.status().message();
    std::string why = "all";
    for (std::size_t i = 0; i < opened->manifest().tensors.size(); ++i) {
      loaded_.resize(bytes_of(opened->manifest().tensors[i]));
      const base::Status status = opened->read(i, loaded_);
      if (!status.ok())
        why = status.message();
      else
        EXPECT_TRUE(std::equal(loaded_.begin(), loaded_.end(), large_.begin())) << "silent damage";
    }
    return why;
  }

  void expect_found(const std::string& file, std::uint64_t at, int bit) {
    flip(file, at, bit);
    EXPECT_EQ(verify(path_).code(), base::Code::kDataLoss)
        << file << " byte " << at << " bit " << bit;
    load();
    flip(file, at, bit);
  }

  std::string directory_, path_;
  std::vector<std::byte> large_, loaded_;
  std::vector<std::string> files_;
};

TEST_F(Flips, AreFoundInEveryByteOfASmallCheckpoint) {
  save(2);
  std::mt19937_64 random(2);
  std::uint64_t flips = 0;
  for (const std::string& file : files_) {
    for (std::uint64_t at = 0; at < fs::file_size(file); ++at, ++flips)
      expect_found(file, at, static_cast<int>(random() % 8));
  }
  EXPECT_TRUE(verify(path_).ok());
  EXPECT_EQ(load(), "all");
  RecordProperty("flips", std::to_string(flips));
  EXPECT_GT(flips, 8000U);
}

TEST_F(Flips, AreFoundAtRandomInALargeCheckpoint) {
  save(5000);  // 20 MB: pieces of more than one block
  const int flips = std::getenv("REGROUP_TEST_FULL") != nullptr ? 20'000 : 300;
  std::mt19937_64 random(3);
  std::vector<std::uint64_t> ends;  // of the files, laid one behind the other
  for (const std::string& file : files_)
    ends.push_back((ends.empty() ? 0 : ends.back()) + fs::file_size(file));
  for (int i = 0; i < flips && !HasFailure(); ++i) {
    // One in four in what is not a tensor's bytes, which would be met once in a thousand flips.
    const std::uint64_t anywhere = random() % ends.back();
    auto file = static_cast<std::size_t>(std::ranges::upper_bound(ends, anywhere) - ends.begin());
    std::uint64_t at = anywhere - (file == 0 ? 0 : ends[file - 1]);
    if (i % 4 == 0) {
      file = random() % files_.size();
      at = random() % std::min<std::uint64_t>(fs::file_size(files_[file]), 4096);
    }
    expect_found(files_[file], at, static_cast<int>(random() % 8));
  }
  EXPECT_TRUE(verify(path_).ok());
}

TEST_F(Flips, AFileThatShrinksUnderItsReaderIsDamage) {
  save(5000);
  const auto opened = Checkpoint::open(path_);
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  const base::Status verified =
      verify(path_, [this](const Progress&) { fs::resize_file(files_[3], 5); });
  EXPECT_EQ(verified.code(), base::Code::kDataLoss);
  EXPECT_NE(verified.message().find("cannot be read: " + files_[3] +
                                    ": unexpected end of file at byte 5"),
            std::string::npos)
      << verified.message();
  loaded_.resize(large_.size());
  const base::Status read = opened->read(*opened->find("w"), loaded_);
  EXPECT_EQ(read.code(), base::Code::kDataLoss);
  EXPECT_NE(read.message().find(files_[3] + ": unexpected end of file at byte"), std::string::npos)
      << read.message();
}

// From 32 MiB of a piece on.
TEST_F(Flips, SeveralThreadsLoadWholeTensors) {
  if (usable_cores() < 2) GTEST_SKIP() << "one thread loads on one core";
  save(20'000);
  const std::string file = files_[2];
  if (!in_page_cache(base::Fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC)).get(), 0,
                     fs::file_size(file)))
    GTEST_SKIP()
        << "one thread loads: the file is not in the page cache, or this kernel does not say so";
  for (const std::uint64_t at :
       {std::uint64_t{5000}, std::uint64_t{9} << 20, fs::file_size(file) - 5000}) {
    flip(file, at, 3);
    const std::string why = load();
    EXPECT_NE(why.find(file + ": bytes "), std::string::npos) << at << ": " << why;
    flip(file, at, 3);
  }
  EXPECT_EQ(load(), "all");
}

TEST_F(Flips, LargeBoxesLoadToAnyAddress) {
  save(5000);
  const auto opened = Checkpoint::open(path_);
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  constexpr auto kUntouched = std::byte{0x5a};
  const Box box{{1, 0}, {4998, 1000}};
  const std::size_t bytes = 4998 * 4000;
  for (const std::size_t begin : {0UL, 1UL, 4UL, 63UL}) {
    loaded_.assign(bytes + 128, kUntouched);
    const auto out = std::span(loaded_).subspan(begin, bytes);
    ASSERT_TRUE(opened->read(*opened->find("w"), box, out).ok());
    EXPECT_TRUE(std::equal(out.begin(), out.end(), large_.begin() + 4000)) << begin;
    EXPECT_TRUE(std::ranges::all_of(std::span(loaded_).first(begin),
                                    [](auto b) { return b == kUntouched; }));
    EXPECT_EQ(loaded_[begin + bytes], kUntouched);
  }
}

}  // namespace
}  // namespace regroup::checkpoint
