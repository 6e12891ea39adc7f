// The lines of a ledger as text, and the marks that leaves have for them.
#include "elastic/ledger_format.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "base/status.h"
#include "elastic/ledger_marks.h"

namespace regroup::elastic {
namespace {

using base::Code;

constexpr LedgerHeader kSmall{.seed = 7, .samples = 40, .batch = 4, .epochs = 2, .shards = 2};

TEST(LedgerFormat, ReadsWhatItWrites) {
  LedgerHeader header = kSmall;
  header.job = "a \"quoted\" job\n";
  header.seed = std::numeric_limits<std::uint64_t>::max();
  header.own_order = header.drop_last = true;
  header.shuffle = false;
  std::string text = text_of(header);
  text.pop_back();
  EXPECT_EQ(parse_ledger_header(text).value(), header);
  const LedgerLine line{.step = 12,
                        .epoch = 1,
                        .substep = 3,
                        .samples = 4,
                        .leaves = {{.samples = 2, .crc = 0xfeed}, {.times = 2}}};
  text = text_of(line);
  text.pop_back();
  EXPECT_EQ(parse_ledger_line(text).value(), line);
}

TEST(LedgerFormat, RefusesDamagedLines) {
  const std::string good =
      R"({"step":1,"epoch":0,"substep":0,"n":4,"leaves":[[2,"00000001"],[2,"feedf00d"]]})";
  ASSERT_TRUE(parse_ledger_line(good).ok());
  const auto with = [&](const std::string& what, const std::string& instead) {
    std::string text = good;
    return text.replace(text.find(what), what.size(), instead);
  };
  for (const std::string& bad : {
           std::string(),
           std::string("[]"),
           std::string(1000, '['),
           good + "x",
           good.substr(1),
           with("\"step\":1", "\"step\":0"),
           with("\"step\":1", "\"step\":-1"),
           with("\"step\":1", "\"step\":1.5"),
           with("\"step\":1", "\"step\":4294967296"),
           with("\"step\":1", "\"step\":\"1\""),
           with("\"step\":1,", ""),
           with("\"n\":4", "\"m\":4"),
           with("\"n\":4", "\"n\":4,\"m\":4"),
           with("[2,\"00000001\"]", "[2,\"0000001\"]"),
           with("[2,\"00000001\"]", "[2,\"0000000G\"]"),
           with("[2,\"feedf00d\"]", "[2,\"FEEDF00D\"]"),
           with("[2,\"00000001\"]", "[2,1]"),
           with("[2,\"00000001\"]", "[2]"),
           with("[2,\"00000001\"]", "[-2,\"00000001\"]"),
           with("[2,\"00000001\"]", "{\"times\":1}"),
           with("[2,\"00000001\"]", "{\"times\":2,\"x\":2}"),
           with("[2,\"00000001\"]", "null"),
           with("\"leaves\":[", "\"leaves\":[[],"),
       }) {
    EXPECT_EQ(parse_ledger_line(bad).code(), Code::kDataLoss) << bad;
  }
}

TEST(LedgerFormat, RefusesDamagedHeaders) {
  std::string good = text_of(kSmall);
  good.pop_back();
  ASSERT_TRUE(parse_ledger_header(good).ok());
  const auto with = [&](const std::string& what, const std::string& instead) {
    std::string text = good;
    return text.replace(text.find(what), what.size(), instead);
  };
  for (const std::string& bad : {
           std::string(),
           std::string("{}"),
           with("regroup ledger", "ledger"),
           with("\"version\":1", "\"version\":2"),
           with("\"job\":\"\"", "\"job\":1"),
           with("\"shards\":2", "\"shards\":0"),
           with("\"shards\":2", "\"shards\":16385"),
           with("\"batch_size\":4", "\"batch_size\":0"),
           with("\"samples\":40", "\"samples\":281474976710657"),
           with("\"substeps\":1", "\"substeps\":0"),
           with("\"shuffle\":true", "\"shuffle\":1"),
           with("\"order\":\"seed\"", "\"order\":\"other\""),
           with("\"first\":1", "\"first\":0"),
           with(
               "\"batch_size\":4,\"shards\":2,\"substeps\":1,\"shuffle\":true,\"drop_last\":false",
               "\"batch_size\":41,\"shards\":2,\"substeps\":1,\"shuffle\":true,\"drop_last\":true"),
       }) {
    EXPECT_EQ(parse_ledger_header(bad).code(), Code::kDataLoss) << bad;
  }
  EXPECT_EQ(parse_ledger_header(with("\"version\":1", "\"version\":2")).status().message(),
            "the ledger has version 2, expected 1");
}

template <class T>
class LedgerMarks : public ::testing::Test {};
using Elements = ::testing::Types<float, double>;
TYPED_TEST_SUITE(LedgerMarks, Elements);

// The leaves add up to what each of them says, in any order.
TYPED_TEST(LedgerMarks, TheSumNamesEachLeaf) {
  constexpr auto kType =
      sizeof(TypeParam) == 8 ? collective::Dtype::kFloat64 : collective::Dtype::kFloat32;
  constexpr proto::Step kStep = proto::kMaxStep - 1;
  const std::vector<LeafRecord> records = {{.samples = 0, .crc = 0},
                                           {.samples = 0xffff'ffff, .crc = 0xffff'ffff},
                                           {.samples = 65'536, .crc = 0x1234'0000}};
  std::vector<TypeParam> sum(mark_elements(3));
  const auto add = [&](std::uint32_t leaf) {
    std::vector<TypeParam> marks(sum.size(), TypeParam(5));  // of an earlier step
    write_marks(std::as_writable_bytes(std::span(marks)), kType, kStep, leaf, records[leaf]);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += marks[i];
  };
  for (const std::uint32_t leaf : {2, 0, 1}) add(leaf);
  const auto read = [&] { return read_marks(std::as_bytes(std::span(sum)), kType, 3); };
  EXPECT_EQ(read().step, kStep);
  EXPECT_EQ(read().leaves, records);
  add(1);
  EXPECT_EQ(read().leaves[1], LeafRecord{.times = 2});
  EXPECT_EQ(read().leaves[2], records[2]);
  sum.assign(sum.size(), std::numeric_limits<TypeParam>::quiet_NaN());
  EXPECT_EQ(read().step, 0U);
  sum.assign(sum.size(), TypeParam(1));
  sum[3] = TypeParam(0.5);
  EXPECT_EQ(read().leaves[0], LeafRecord{.times = 0});
}

}  // namespace
}  // namespace regroup::elastic
