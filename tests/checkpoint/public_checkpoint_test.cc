// regroup::Checkpoint as a user's program has it: on a checkpoint of one file with two tensors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "checkpoint/directory.h"
#include "checkpoint/manifest.h"
#include "regroup/checkpoint.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class PublicCheckpoint : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "public-checkpoint-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    const float weight[] = {1, 2, 3, 4, 5, 6};
    std::memcpy(bytes_.data() + 8, weight, sizeof(weight));
    const std::int32_t count = 7;
    std::memcpy(bytes_.data() + 32, &count, sizeof(count));
    save(5), save(9);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::vector<std::uint32_t> crc(std::size_t offset, std::size_t bytes) const {
    return {base::crc32c(std::span(bytes_).subspan(offset, bytes))};
  }
  std::string path_of(proto::Step step) const {
    return (folder_ / checkpoint::name_of_step(step)).string();
  }
  void save(proto::Step step) const {
    checkpoint::Manifest manifest;
    manifest.step = step, manifest.job = "5e2f";
    manifest.files = {
        {"shard-0000-of-0001.h5", bytes_.size(), {{0, 8, crc(0, 8)}, {36, 28, crc(36, 28)}}}};
    manifest.tensors = {
        {"weight", "float32", {2, 3}, {{0, "weight", {{0, 0}, {2, 3}}, {8, 24, crc(8, 24)}}}},
        {"count", "int32", {}, {{0, "count", {{}, {}}, {32, 4, crc(32, 4)}}}}};
    ASSERT_TRUE(checkpoint::check(manifest).ok()) << checkpoint::check(manifest).message();
    fs::create_directory(path_of(step));
    std::ofstream(path_of(step) + "/MANIFEST", std::ios::binary) << checkpoint::encode(manifest);
    write(step, bytes_);
  }
  void write(proto::Step step, const std::vector<std::byte>& bytes) const {
    std::ofstream file(path_of(step) + "/shard-0000-of-0001.h5", std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }

  fs::path folder_;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(64);
};

TEST_F(PublicCheckpoint, TheNewestIsReadByNames) {
  auto opened = Checkpoint::newest(folder_.string());
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_EQ(opened->step(), 9U);
  EXPECT_EQ(opened->path(), path_of(9));
  ASSERT_EQ(opened->tensors().size(), 2U);
  const CheckpointTensor& tensor = opened->tensors()[*opened->find("weight")];
  EXPECT_EQ(tensor.dtype, "float32");
  EXPECT_THAT(tensor.shape, ElementsAre(2, 3));
  std::vector<float> values(6);
  ASSERT_TRUE(
      opened->read(*opened->find("weight"), std::as_writable_bytes(std::span(values))).ok());
  EXPECT_THAT(values, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_FALSE(opened->find("bias"));
}

TEST_F(PublicCheckpoint, AnOlderOneIsOpenedByItsFolderAndMoves) {
  auto opened = Checkpoint::open(path_of(5));
  ASSERT_TRUE(opened.ok());
  Checkpoint moved = std::move(*opened);
  EXPECT_EQ(moved.step(), 5U);
  EXPECT_TRUE(moved.verify(2).ok());
}

TEST_F(PublicCheckpoint, SizesAndIndicesAreChecked) {
  auto opened = Checkpoint::open(path_of(5));
  ASSERT_TRUE(opened.ok());
  std::vector<std::byte> out(4);
  EXPECT_EQ(opened->read(0, out).code(), base::Code::kInvalidArgument);
  EXPECT_EQ(opened->read(2, out).code(), base::Code::kInvalidArgument);
  EXPECT_THAT(opened->read(2, out).message(), HasSubstr("tensor 2: expected a number below 2"));
}

TEST_F(PublicCheckpoint, DamageIsAnErrorThatSaysWhere) {
  bytes_[12] ^= std::byte{1};
  write(9, bytes_);
  auto opened = Checkpoint::newest(folder_.string());
  ASSERT_TRUE(opened.ok());
  std::vector<std::byte> out(24);
  const base::Status read = opened->read(0, out);
  EXPECT_EQ(read.code(), base::Code::kDataLoss);
  EXPECT_THAT(read.message(), HasSubstr("shard-0000-of-0001.h5"));
  EXPECT_EQ(opened->verify().code(), base::Code::kDataLoss);
  EXPECT_TRUE(opened->read(1, std::span(out).first(4)).ok());  // the other tensor is as it was
}

TEST_F(PublicCheckpoint, ReportsAnEmptyDirectory) {
  EXPECT_EQ(Checkpoint::newest((folder_ / "none").string()).code(), base::Code::kNotFound);
  fs::create_directory(folder_ / "empty");
  EXPECT_THAT(Checkpoint::newest((folder_ / "empty").string()).status().message(),
              HasSubstr("holds no checkpoint"));
  EXPECT_EQ(Checkpoint::open((folder_ / "none").string()).code(), base::Code::kNotFound);
  EXPECT_THAT(Checkpoint::open(folder_.string()).status().message(),
              HasSubstr(path_of(9) + " is the newest"));
}

}  // namespace
}  // namespace regroup
