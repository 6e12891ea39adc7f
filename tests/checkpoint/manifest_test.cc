// The MANIFEST: round trip, every flipped bit, every cut, and contents that cannot be.
#include "checkpoint/manifest.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <iterator>

#include "base/crc32c.h"
#include "tests/checkpoint/samples.h"

namespace regroup::checkpoint {
namespace {

base::Result<Manifest> parse(const std::string& text) {
  return parse_manifest(std::as_bytes(std::span(text)), "MANIFEST");
}

TEST(Manifest, SurvivesARoundTrip) {
  const auto back = parse(encode(sample_manifest()));
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(*back, sample_manifest());
}

TEST(Manifest, EveryFlippedBitIsNoticed) {
  std::string text = encode(sample_manifest());
  for (std::size_t bit = 0; bit < 8 * text.size(); ++bit) {
    text[bit / 8] ^= static_cast<char>(1 << bit % 8);
    ASSERT_EQ(parse(text).code(), base::Code::kDataLoss) << "bit " << bit;
    text[bit / 8] ^= static_cast<char>(1 << bit % 8);
  }
}

TEST(Manifest, EveryCutIsNoticed) {
  const std::string text = encode(sample_manifest());
  for (std::size_t size = 0; size < text.size(); ++size)
    ASSERT_EQ(parse(text.substr(0, size)).code(), base::Code::kDataLoss) << size;
}

TEST(Manifest, SaysWhatIsWrongWithANameByItsBeginningAndLength) {
  Manifest manifest = sample_manifest();
  manifest.tensors[0].name = std::string(5000, 'a');
  EXPECT_EQ(check(manifest).message(),
            "tensor " + std::string(40, 'a') + "...: name of 5000 bytes, expected at most 4096");
  manifest.tensors[0].name.clear();
  EXPECT_EQ(check(manifest).message(), "a tensor has an empty name");
}

// Contents that a faulty or malicious writer may put under a valid checksum.
TEST(Manifest, RefusesImpossibleValues) {
  const std::pair<const char*, std::function<void(Manifest&)>> kBad[] = {
      {"a file elsewhere", [](Manifest& m) { m.files[0].name = "../passwd"; }},
      {"a file that is the manifest", [](Manifest& m) { m.files[0].name = "MANIFEST"; }},
      {"a file twice", [](Manifest& m) { m.files[1].name = m.files[0].name; }},
      {"a byte covered by nothing", [](Manifest& m) { m.files[0].rest[1].bytes -= 1; }},
      {"a byte covered twice", [](Manifest& m) { m.files[0].rest[0].bytes += 1; }},
      {"beyond the file", [](Manifest& m) { m.tensors[0].pieces[0].range.offset = 990; }},
      {"an offset that overflows",
       [](Manifest& m) { m.tensors[0].pieces[0].range.offset = UINT64_MAX; }},
      {"too few checksums", [](Manifest& m) { m.tensors[0].pieces[0].range.crcs.clear(); }},
      {"a piece that is missing", [](Manifest& m) { m.tensors[0].pieces.pop_back(); }},
      {"bytes that do not fit the box",
       [](Manifest& m) { m.tensors[0].pieces[0].range.bytes = 20; }},
      {"an unknown type", [](Manifest& m) { m.tensors[0].dtype = "float31"; }},
      {"a tensor twice", [](Manifest& m) { m.tensors.push_back(m.tensors[2]); }},
      {"a size that overflows",
       [](Manifest& m) {
         m.tensors[2].shape = {1ULL << 40, 1ULL << 40};
       }},
      {"a box beyond the tensor", [](Manifest& m) { m.tensors[0].pieces[1].box.start[0] = 3; }},
      {"no shards", [](Manifest& m) { m.shards = 0; }},
  };
  for (const auto& [what, change] : kBad) {
    Manifest bad = sample_manifest();
    change(bad);
    EXPECT_EQ(parse(encode(bad)).code(), base::Code::kDataLoss) << what;
  }
}

std::string with_checksum(const std::string& body) {
  char trailer[32];
  std::snprintf(trailer, sizeof trailer, "crc32c=%08x\n",
                base::crc32c(std::as_bytes(std::span(body))));
  return body + trailer;
}

TEST(Manifest, RefusesInvalidJson) {
  for (const char* body :
       {"", "{", "[]", "null", "{}", "{\"format\":\"regroup-checkpoint\",\"version\":\"1\"}"})
    EXPECT_EQ(parse(with_checksum(body)).code(), base::Code::kDataLoss) << body;
  std::string deep(1 << 20, '[');
  EXPECT_EQ(parse(with_checksum(deep)).code(), base::Code::kDataLoss);
}

TEST(Manifest, NamesTheVersionItDoesNotRead) {
  const auto later = parse(with_checksum("{\"format\":\"regroup-checkpoint\",\"version\":3}"));
  EXPECT_EQ(later.code(), base::Code::kInvalidArgument);
  EXPECT_NE(later.status().message().find("version 3, expected 1 to 2"), std::string::npos);
}

// A reader of version 1, which does not look at the content, must refuse tables.
TEST(Manifest, OfTablesHasVersion2) {
  Manifest tables = sample_manifest();
  EXPECT_NE(encode(tables).find("\"version\":1,"), std::string::npos);
  tables.content = Content::kTables;
  const std::string text = encode(tables);
  EXPECT_NE(text.find("\"version\":2,"), std::string::npos);
  const auto read = parse(text);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(*read, tables);
  const auto other = parse(with_checksum(
      "{\"format\":\"regroup-checkpoint\",\"version\":2,\"block\":8388608,\"content\":\"b\"}"));
  EXPECT_EQ(other.status().message(),
            "MANIFEST: content \"b\", expected \"tables\" or \"table-changes\"");
}

TEST(Manifest, OfTableChangesNamesItsBase) {
  Manifest changes = sample_manifest();
  changes.content = Content::kTableChanges;
  changes.base = changes.step - 1;
  const auto read = parse(encode(changes));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(*read, changes);
  changes.base = changes.step;
  EXPECT_EQ(parse(encode(changes)).code(), base::Code::kDataLoss);
}

TEST(Manifest, MergesThePartsOfWriters) {
  const Manifest all = sample_manifest();
  std::vector<Manifest> parts(2, all);
  for (std::uint32_t w = 0; w < 2; ++w) {
    parts[w].files = {all.files[w]};
    for (Tensor& tensor : parts[w].tensors) {
      std::erase_if(tensor.pieces, [&](const Piece& piece) { return piece.file != w; });
      for (Piece& piece : tensor.pieces) piece.file = 0;
    }
    const std::string text = encode(parts[w]);
    ASSERT_TRUE(parse_part(std::as_bytes(std::span(text)), "PART").ok());
    EXPECT_FALSE(parse(text).ok());  // a part is no checkpoint
  }
  const auto merged = merge(parts);
  ASSERT_TRUE(merged.ok()) << merged.status().message();
  EXPECT_EQ(*merged, all);
  EXPECT_EQ(merge({parts[0]}).code(), base::Code::kDataLoss);
  parts[1].step += 1;
  EXPECT_EQ(merge(parts).code(), base::Code::kDataLoss);
}

// Each version as the first release wrote it. Never make these files anew: what changes them makes
// the next version.
TEST(Manifest, ReadsTheGoldenFileOfEveryVersion) {
  Manifest expected = sample_manifest();
  int wrote = 0;
  for (const char* const version : {"version-1", "version-2", "version-2-changes"}) {
    std::ifstream file(std::string("tests/golden/checkpoint/") + version, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const auto golden = parse(text);
    ASSERT_TRUE(golden.ok()) << golden.status().message();
    EXPECT_EQ(*golden, expected) << version;
    expected.content = ++wrote == 1 ? Content::kTables : Content::kTableChanges;
    expected.base = wrote == 1 ? 0 : 1;
  }
}

}  // namespace
}  // namespace regroup::checkpoint
