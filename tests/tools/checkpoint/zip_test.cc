// Archives that a reader must not take. Those that NumPy and PyTorch write: tests/python.
#include "tools/checkpoint/zip.h"

#include <gmock/gmock.h>

#include "tests/tools/checkpoint/archive.h"

namespace regroup::checkpoint_tool {
namespace {

using testing::HasSubstr;

base::Result<std::vector<ZipMember>> read(const std::string& archive) {
  return read_zip(std::as_bytes(std::span(archive)), "a.zip");
}

TEST(Zip, ReadsStoredMembers) {
  const std::string archive = archive_of({{"a", "one"}, {"b", ""}});
  const auto members = read(archive);
  ASSERT_TRUE(members.ok()) << members.status().message();
  ASSERT_EQ(members->size(), 2);
  EXPECT_EQ((*members)[0].name, "a");
  EXPECT_EQ((*members)[0].bytes.size(), 3);
  EXPECT_TRUE((*members)[1].bytes.empty());
}

// Each would be read and checked, which takes hours where thousands of names share a gigabyte.
TEST(Zip, RefusesMembersThatShareTheirBytes) {
  std::vector<std::pair<std::string, std::string>> members(50, {"a", std::string(4000, 'x')});
  const auto shared = read(archive_of(members, /*stored=*/1));
  EXPECT_EQ(shared.code(), base::Code::kInvalidArgument);
  EXPECT_THAT(shared.status().message(), HasSubstr("files overlap"));
}

TEST(Zip, SaysWhichMemberIsDamaged) {
  std::string archive = archive_of({{"good", "one"}, {"bad", "two"}});
  archive[archive.find("two")] = 'T';
  const auto members = read(archive);
  EXPECT_EQ(members.code(), base::Code::kDataLoss);
  EXPECT_THAT(members.status().message(), HasSubstr("bad is damaged"));
}

TEST(Zip, RefusesAVersionThatNobodyKnows) {
  std::string archive = archive_of({{"a", "one"}});
  archive[archive.find("PK\1\2") + 6] = 64;
  EXPECT_THAT(read(archive).status().message(),
              HasSubstr("a requires format version 6.4, expected at most 6.3"));
}

TEST(Zip, RefusesEveryCutOffArchive) {
  const std::string archive = archive_of({{"a", "one"}, {"b", "two"}});
  for (std::size_t size = 0; size < archive.size(); ++size)
    EXPECT_FALSE(read(archive.substr(0, size)).ok()) << size;
}

}  // namespace
}  // namespace regroup::checkpoint_tool
