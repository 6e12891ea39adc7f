// What `regroup bench` tells: the table of nccl-tests with our columns, lines on rivals, and JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/bench/operations.h"
#include "tools/bench/options.h"
#include "tools/bench/stats.h"

namespace regroup::bench {

// Of one runner; without a block it was wrong and not timed. Microseconds.
struct Series {
  std::uint64_t wrong = 0;
  Blocks blocks;
};

// A rival beside the rows of one size.
struct RivalSeries {
  std::string name;
  std::string refusal;  // why it was not measured; "": it was
  Series series;
};

// One size in one kind of memory.
struct Row {
  Memory memory;
  std::optional<Series> out_of_place, in_place;
  [[nodiscard]] const Series& main() const { return out_of_place ? *out_of_place : *in_place; }
};

// All of one size.
struct SizeResult {
  Case c;            // in_place is of no meaning
  std::size_t size;  // bytes
  std::vector<Row> rows;
  std::optional<Series> copy;  // each rank copies `size` bytes
  std::optional<Series> bare;  // a loop without synchronisation
  std::vector<RivalSeries> rivals;
};

struct Machine {
  std::string model;
  int cores = 0;  // that rank 0 may use
  double load = 0;
};
[[nodiscard]] Machine this_machine();

// Percent of what memory allows: the time in which P ranks that copy past the cache move what the
// operation moves at least, over its own time; median of the rounds' ratios. Nothing where there
// was no copy or series.
[[nodiscard]] std::optional<double> copy_percent(const SizeResult& result, const Series& series,
                                                 int ranks);
// The time of the bare loop over ours, in percent.
[[nodiscard]] std::optional<double> bare_percent(const SizeResult& result, const Series& series);

[[nodiscard]] std::string head_text(const Options& options, int ranks, const Machine& machine);
[[nodiscard]] std::string text_of(const SizeResult& result, int ranks);
// One object, one line; the fields are in docs/guide/collectives.md.
[[nodiscard]] std::string json_of(const Options& options, int ranks, const Machine& machine,
                                  const std::vector<SizeResult>& results);

}  // namespace regroup::bench
