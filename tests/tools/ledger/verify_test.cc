// `regroup ledger verify`: whole ledgers of all kinds, and what is said of damaged ones.
#include "tools/ledger/verify.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace regroup::ledger_tool {
namespace {

using elastic::LedgerHeader;
using elastic::LedgerLine;
using elastic::Sampler;
using proto::Step;

constexpr LedgerHeader kHeader{
    .job = "", .seed = 3, .samples = 25, .batch = 8, .epochs = 3, .shards = 4};

elastic::SamplerOptions options_of(const LedgerHeader& h) {
  return {.samples = h.samples,
          .batch = h.batch,
          .shards = h.shards,
          .substeps = h.substeps,
          .shuffle = h.shuffle,
          .drop_last = h.drop_last};
}

LedgerLine line_of(const LedgerHeader& h, Step step) {
  const Sampler sampler(h.seed, options_of(h));
  const auto batch = sampler.batch_of(step);
  LedgerLine line{.step = step,
                  .epoch = batch.epoch,
                  .substep = static_cast<std::uint32_t>((step - 1) % h.substeps),
                  .samples = batch.end - batch.begin};
  for (std::uint32_t leaf = 0; leaf < h.shards; ++leaf) {
    const auto samples = sampler.samples_of(step, leaf);
    line.leaves.push_back({.samples = samples.size(), .crc = elastic::samples_crc(samples)});
  }
  return line;
}

// The lines of a ledger; the first one is the header.
std::vector<std::string> lines_of(const LedgerHeader& h, Step last) {
  std::vector<std::string> lines{text_of(h)};
  for (Step step = h.first; step <= last; ++step) lines.push_back(text_of(line_of(h, step)));
  return lines;
}

struct Answer {
  base::Status status;
  std::vector<std::string> differences;
  std::uint64_t count = 0;
  std::string summary;
  std::vector<std::string> missing;
  std::optional<Step> unchecked;
};

Answer verify(const std::string& text, std::uint64_t most_computed = kMostComputed) {
  // fmemopen() refuses an empty buffer
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), &std::fclose);
  std::fwrite(text.data(), 1, text.size(), file.get());
  std::rewind(file.get());
  Verifier verifier(most_computed);
  Answer answer;
  answer.status = read_ledger(file.get(), "file", &verifier);
  answer.differences = verifier.differences();
  answer.count = verifier.number_of_differences();
  answer.unchecked = verifier.unchecked();
  if (answer.status.ok()) answer.summary = verifier.summary();
  if (answer.status.ok()) answer.missing = verifier.missing();
  return answer;
}

Answer verify(const std::vector<std::string>& lines, std::uint64_t most_computed = kMostComputed) {
  std::string text;
  for (const std::string& line : lines) text += line;
  return verify(text, most_computed);
}

TEST(VerifyLedger, WholeLedgersPass) {
  LedgerHeader h = kHeader;
  EXPECT_EQ(verify(lines_of(h, 12)).summary,
            "job without a launcher, seed 3, 25 samples in batches of 8, 4 shards, 3 epochs\n"
            "steps 1 to 12: 12 lines, 3 complete epochs, 75 samples used; in a complete epoch each "
            "sample once\n");
  EXPECT_EQ(verify(lines_of(h, 12)).count, 0U);
  for (int kind = 0; kind < 8; ++kind) {
    h.shuffle = (kind & 1) != 0;
    h.drop_last = (kind & 2) != 0;
    h.substeps = (kind & 4) != 0 ? 2 : 1;
    const Step last = (h.drop_last ? 9 : 12) * h.substeps;
    const Answer answer = verify(lines_of(h, last));
    EXPECT_EQ(answer.count, 0U) << kind << answer.differences[0];
    EXPECT_EQ(answer.missing, std::vector<std::string>()) << kind;
    EXPECT_EQ(verify(lines_of(h, last - 1)).missing,
              std::vector{fmt::format("it ends with step {} of {}", last - 1, last)});
    EXPECT_NE(answer.summary.find("3 complete epochs, " + std::string(h.drop_last ? "72" : "75")),
              std::string::npos)
        << answer.summary;
  }
}

TEST(VerifyLedger, AnEpochThatIsNotOverIsNotComplete) {
  const Answer answer = verify(lines_of(kHeader, 7));
  EXPECT_EQ(answer.count, 0U);
  EXPECT_NE(answer.summary.find("steps 1 to 7: 7 lines, 1 complete epoch, 49 samples used"),
            std::string::npos)
      << answer.summary;
  LedgerHeader late = kHeader;
  late.first = 3;
  EXPECT_NE(verify(lines_of(late, 8)).summary.find("steps 3 to 8: 6 lines, 1 complete epoch"),
            std::string::npos);
  EXPECT_NE(verify(lines_of(kHeader, 0)).summary.find("no step, 0 complete epochs"),
            std::string::npos);
}

TEST(VerifyLedger, NamesWhatIsMissingBeforeAndAfterTheLines) {
  using Sentences = std::vector<std::string>;
  EXPECT_EQ(verify(lines_of(kHeader, 12)).missing, Sentences());
  EXPECT_EQ(verify(lines_of(kHeader, 0)).missing, Sentences{"it ends with step 0 of 12"});
  LedgerHeader late = kHeader;
  late.first = 3;
  EXPECT_EQ(verify(lines_of(late, 12)).missing, Sentences{"it begins with step 3"});
  EXPECT_EQ(verify(lines_of(late, 11)).missing,
            (Sentences{"it begins with step 3", "it ends with step 11 of 12"}));
  auto torn = lines_of(kHeader, 12);
  torn.back().pop_back();
  EXPECT_EQ(verify(torn).missing,
            (Sentences{"it ends with step 11 of 12", "its last line has no end"}));
  LedgerHeader endless = kHeader;
  endless.epochs = 0;
  EXPECT_EQ(verify(lines_of(endless, 5)).missing, Sentences());
  endless.epochs = UINT64_MAX;
  EXPECT_EQ(verify(lines_of(endless, 5)).missing,
            Sentences{"it ends with step 5 of 18446744073709551615"});
}

TEST(VerifyLedger, ATornLineDoesNotCount) {
  auto lines = lines_of(kHeader, 5);
  lines.back().resize(20);
  const Answer answer = verify(lines);
  EXPECT_EQ(answer.count, 0U);
  EXPECT_NE(answer.summary.find("steps 1 to 4:"), std::string::npos);
  EXPECT_NE(answer.summary.find("the last line has no end, and does not count"), std::string::npos);
}

TEST(VerifyLedger, NamesOneChangedIndex) {
  auto lines = lines_of(kHeader, 12);
  const Sampler sampler(kHeader.seed, options_of(kHeader));
  LedgerLine line = line_of(kHeader, 6);
  auto samples = sampler.samples_of(6, 2);
  samples[1] += 1;
  line.leaves[2].crc = elastic::samples_crc(samples);
  lines[6] = text_of(line);
  const Answer answer = verify(lines);
  ASSERT_EQ(answer.count, 1U);
  EXPECT_EQ(answer.differences[0].substr(0, 39),
            "line 7: step 6: leaf 2: CRC32C " + answer.differences[0].substr(31, 8));
  EXPECT_NE(answer.differences[0].find(" of 2 samples, expected CRC32C "), std::string::npos);
  EXPECT_NE(answer.summary.find("2 complete epochs"), std::string::npos) << answer.summary;
}

TEST(VerifyLedger, NamesARemovedLine) {
  for (Step gone = 1; gone < 12; ++gone) {  // without its last line a ledger is only shorter
    auto lines = lines_of(kHeader, 12);
    lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(gone));
    const Answer answer = verify(lines);
    ASSERT_EQ(answer.count, 1U) << gone;
    EXPECT_EQ(answer.differences[0], fmt::format("line {}: step {}: the line of step {} is missing",
                                                 gone + 1, gone + 1, gone));
    EXPECT_NE(answer.summary.find("2 complete epochs"), std::string::npos)
        << gone << answer.summary;
  }
}

TEST(VerifyLedger, NamesADoubledLine) {
  for (Step twice = 1; twice <= 12; ++twice) {
    auto lines = lines_of(kHeader, 12);
    lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(twice), lines[twice]);
    const Answer answer = verify(lines);
    ASSERT_EQ(answer.count, 1U) << twice;
    EXPECT_EQ(
        answer.differences[0],
        fmt::format("line {}: step {} comes after step {}: its line is doubled or out of order",
                    twice + 2, twice, twice));
  }
}

TEST(VerifyLedger, NamesLinesOutOfOrder) {
  auto lines = lines_of(kHeader, 12);
  std::swap(lines[3], lines[4]);
  EXPECT_EQ(verify(lines).count, 2U);
}

TEST(VerifyLedger, NamesEachFieldThatDiffers) {
  const std::vector<std::pair<std::function<void(LedgerLine&)>, std::string>> changes = {
      {[](LedgerLine& l) { l.epoch = 2; }, "line 6: step 5: epoch 2, expected 1"},
      {[](LedgerLine& l) { l.substep = 2; }, "line 6: step 5: substep 2, expected 0"},
      {[](LedgerLine& l) { l.samples = 9; }, "line 6: step 5: n 9, expected 8"},
      {[](LedgerLine& l) { l.leaves.pop_back(); },
       "line 6: step 5: it has 3 leaf records, expected 4"},
      {[](LedgerLine& l) { l.leaves[1].samples = 7; },
       "line 6: step 5: leaf 1: 7 samples, expected 2"},
      {[](LedgerLine& l) { l.leaves[1] = {.times = 2}; },
       "line 6: step 5: leaf 1: the sum has it 2 times, expected once"},
  };
  for (const auto& [change, expected] : changes) {
    auto lines = lines_of(kHeader, 12);
    LedgerLine line = line_of(kHeader, 5);
    change(line);
    lines[5] = text_of(line);
    const Answer answer = verify(lines);
    ASSERT_EQ(answer.count, 1U) << expected;
    EXPECT_EQ(answer.differences[0], expected);
  }
}

TEST(VerifyLedger, AnotherSeedIsNoticed) {
  auto lines = lines_of(kHeader, 4);
  LedgerHeader other = kHeader;
  other.seed = 4;
  lines[0] = text_of(other);
  EXPECT_GE(verify(lines).count, 10U);
  EXPECT_EQ(verify(lines).differences.size(), 10U);
}

TEST(VerifyLedger, AStepAfterTheLastEpochIsNamed) {
  const Answer answer = verify(lines_of(kHeader, 13));
  ASSERT_EQ(answer.count, 1U);
  EXPECT_EQ(answer.differences[0], "line 14: step 13: it is after the last epoch, 3 in all");
}

TEST(VerifyLedger, OnlyTheOrderIsCheckedOfAScriptsSampler) {
  LedgerHeader h = kHeader;
  h.own_order = true;
  auto lines = lines_of(h, 12);
  LedgerLine line = line_of(h, 5);
  line.leaves[0].crc ^= 1;
  lines[5] = text_of(line);
  const Answer answer = verify(lines);
  EXPECT_EQ(answer.count, 0U);
  EXPECT_NE(answer.summary.find("3 complete epochs, 75 samples used; their order is that of a "
                                "sampler of the script"),
            std::string::npos)
      << answer.summary;
  line.leaves[0].samples += 1;
  lines[5] = text_of(line);
  EXPECT_EQ(verify(lines).count, 1U);
}

TEST(VerifyLedger, OnlyTheStepsAreCheckedWithoutASampler) {
  LedgerHeader h{.batch = 8, .shards = 2};
  std::vector<std::string> lines{text_of(h)};
  for (Step step = 1; step <= 3; ++step)
    lines.push_back(text_of(LedgerLine{
        .step = step, .samples = 8, .leaves = {{.samples = 5, .crc = 1}, {.samples = 3}}}));
  EXPECT_EQ(verify(lines).count, 0U);
  EXPECT_NE(verify(lines).summary.find("the session has no sampler"), std::string::npos);
  lines.erase(lines.begin() + 2);
  EXPECT_EQ(verify(lines).count, 1U);
}

TEST(VerifyLedger, OtherFilesAreRefusedInWords) {
  EXPECT_EQ(verify(std::string()).status.message(), "file: empty: no step was begun");
  EXPECT_EQ(verify("hello\n").status.message(), "file: no ledger: line 1: it is not a JSON object");
  EXPECT_EQ(verify("{\"step\": 1}\n").status.message(),
            "file: no ledger: line 1: it is not the header of a ledger");
  EXPECT_EQ(verify(text_of(kHeader) + std::string((4 << 20) + 1, 'x')).status.message(),
            "file: no ledger: a line is longer than 4194304 bytes");
  const Answer answer = verify(text_of(kHeader) + "hello\x1b\n");
  EXPECT_EQ(answer.differences[0],
            "line 2: not a line of a ledger: it is not a JSON object: hello\\x1b");
}

// A header may promise any number of samples.
TEST(VerifyLedger, AHostileHeaderTakesNoTime) {
  LedgerHeader h{.samples = 1ULL << 48, .batch = 1ULL << 48, .shards = 2};
  LedgerLine line = line_of(kHeader, 1);
  line.leaves.resize(2);
  EXPECT_GE(verify({text_of(h), text_of(line)}).count, 1U);
  // One whose leaves have as many as it promises.
  line.samples = h.samples;
  for (auto& leaf : line.leaves) leaf = {.samples = 1ULL << 47, .crc = 1};
  const Answer answer = verify({text_of(h), text_of(line)});
  EXPECT_EQ(answer.unchecked, 1U);
  EXPECT_EQ(answer.count, 0U);
  EXPECT_NE(answer.summary.find("0 complete epochs, 0 samples used"), std::string::npos)
      << answer.summary;
}

// Each line is of another epoch, so the bits of all samples are cleared again and again.
TEST(VerifyLedger, AHostileHeaderOfManyEpochsTakesNoTime) {
  LedgerHeader h{.samples = 1ULL << 24, .batch = 1, .epochs = 1ULL << 20};
  std::vector<std::string> lines{text_of(h)};
  for (Step epoch = 0; epoch < 20; ++epoch) lines.push_back(text_of(line_of(h, (epoch << 24) + 1)));
  EXPECT_EQ(verify(lines, 10 * (h.samples / 64) + 15).unchecked, (10U << 24) + 1);
  EXPECT_EQ(verify(lines).unchecked, std::nullopt);
}

TEST(VerifyLedger, ChecksUntilTheSamplesAreTooMany) {
  auto lines = lines_of(kHeader, 12);
  EXPECT_EQ(verify(lines, 75).unchecked, std::nullopt);
  EXPECT_EQ(verify(lines, 74).unchecked, 12U);
  const Answer answer = verify(lines, 20);
  EXPECT_EQ(answer.unchecked, 3U);
  EXPECT_EQ(answer.count, 0U);
  LedgerLine line = line_of(kHeader, 2);
  line.leaves[0].crc ^= 1;
  lines[2] = text_of(line);
  EXPECT_EQ(verify(lines, 20).count, 1U);
}

// One byte changed, anywhere: never a crash, and noticed but for the job's name and its epochs.
TEST(VerifyLedger, AnyChangedByteIsNoticed) {
  LedgerHeader h = kHeader;
  h.job = "name";
  std::string text;
  for (const std::string& line : lines_of(h, 12)) text += line;
  std::mt19937 random(5);
  for (std::size_t at = 0; at + 1 < text.size(); ++at) {
    std::string damaged = text;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 + random() % 255));
    const Answer answer = verify(damaged);
    const std::size_t name = text.find("name");
    const bool harmless = (at >= name && at < name + 4) || at == text.find("\"epochs\":3") + 9;
    EXPECT_TRUE(!answer.status.ok() || answer.count > 0 || harmless) << at << ": " << damaged;
  }
}

}  // namespace
}  // namespace regroup::ledger_tool
