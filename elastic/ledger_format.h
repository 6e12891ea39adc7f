// The text of a ledger: a header line, then a line for each committed step.
// docs/design/ledger.md has the reasons, docs/reference/formats/ledger.md the grammar.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "proto/world.h"

namespace regroup::elastic {

inline constexpr const char* kLedgerFile = "ledger.jsonl";  // in the folder of --ledger
inline constexpr int kLedgerVersion = 1;                    // of the format and of the sampler
// Greatest length of a line; the longest that is written has some 500 KB.
inline constexpr std::size_t kLongestLedgerLine = 4 << 20;
// Greatest number of samples of a data set, and of a batch, that a header may have.
inline constexpr std::uint64_t kMostLedgerSamples = 1ULL << 48;

struct LedgerHeader {
  std::string job;  // id of the run that began the file; empty: it had no launcher
  std::uint64_t seed = 0;
  std::uint64_t samples = 0;  // of an epoch; 0: the session has no sampler
  std::uint64_t batch = 0;
  std::uint64_t epochs = 0;  // 0: no end
  std::uint32_t shards = 1;
  std::uint32_t substeps = 1;
  bool shuffle = true;
  bool drop_last = false;
  bool own_order = false;  // the samples follow from a sampler of the script, not from the seed
  proto::Step first = 1;   // step of the first line
  bool operator==(const LedgerHeader&) const = default;
};

// What the sum of a step says about one of its leaves.
struct LeafRecord {
  std::uint32_t times = 1;  // how often the sum contains the leaf
  std::uint64_t samples = 0;
  std::uint32_t crc = 0;  // samples_crc() of their indices
  bool operator==(const LeafRecord&) const = default;
};

struct LedgerLine {
  proto::Step step = 0;
  std::uint64_t epoch = 0;
  std::uint32_t substep = 0;
  std::uint64_t samples = 0;  // of the whole batch
  std::vector<LeafRecord> leaves;
  bool operator==(const LedgerLine&) const = default;
};

// CRC32C of the indices as 8 bytes each, least significant byte first, continuing from `crc`.
[[nodiscard]] std::uint32_t samples_crc(std::span<const std::uint64_t> samples,
                                        std::uint32_t crc = 0);

// A line, with its end. Equal values have equal bytes.
[[nodiscard]] std::string text_of(const LedgerHeader& header);
[[nodiscard]] std::string text_of(const LedgerLine& line);
// The header with room for any number of epochs: spaces before the end of its line, which a job
// that resumes with more epochs may take.
[[nodiscard]] std::string text_with_room(const LedgerHeader& header);
// Adds spaces before the end of a line, `text`, so that it has `size` bytes, at least its own.
[[nodiscard]] std::string with_room(std::string text, std::size_t size);
// The opposite, of a line without its end. kDataLoss: it is no such line; the message says why.
[[nodiscard]] base::Result<LedgerHeader> parse_ledger_header(std::string_view text);
[[nodiscard]] base::Result<LedgerLine> parse_ledger_line(std::string_view text);

// Names the first field in which two headers differ that a run cannot change by resuming, as
// "batch_size 32, expected 64"; "": none. Job, epochs and first step may differ.
[[nodiscard]] std::string other_run(const LedgerHeader& header, const LedgerHeader& expected);

}  // namespace regroup::elastic
