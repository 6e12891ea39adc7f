// The output of `regroup bench`: the table of nccl-tests with our columns, lines on rivals, JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/bench/operations.h"
#include "tools/bench/options.h"
#include "tools/bench/stats.h"

namespace regroup::bench {

// What one runner measured, in microseconds. Without blocks: its result was wrong, so it was not
// timed.
struct Series {
  std::uint64_t wrong = 0;  // elements
  Blocks blocks;
};

// What one rival measured for one size.
struct RivalSeries {
  std::string name;
  std::string refusal;  // why it was not measured; "" if it was
  Series series;
};

// What our operation measured for one size in one kind of memory.
struct Row {
  Memory memory;
  std::optional<Series> out_of_place;
  std::optional<Series> in_place;
  [[nodiscard]] const Series& main() const { return out_of_place ? *out_of_place : *in_place; }
};

// All that was measured for one size.
struct SizeResult {
  Case c;            // in_place is not used
  std::size_t size;  // bytes
  std::vector<Row> rows;
  std::optional<Series> copy;  // make_copy_runner(), `size` bytes
  std::optional<Series> bare;  // make_bare_runner()
  std::vector<RivalSeries> rivals;
};

struct Machine {
  std::string model;
  int cores = 0;  // that rank 0 may use
  double load = 0;
};
[[nodiscard]] Machine this_machine();

// Percent of the memory's bandwidth that the operation reaches. The operation moves at least
// OperationSpec::traffic bytes; this is the time in which P ranks copy as many bytes past the
// cache, divided by the operation's time: the median of the rounds' ratios. nullopt if copy or
// series was not timed.
[[nodiscard]] std::optional<double> copy_percent(const SizeResult& result, const Series& series,
                                                 int ranks);
// The time of the bare loop divided by that of the operation, in percent.
[[nodiscard]] std::optional<double> bare_percent(const SizeResult& result, const Series& series);

[[nodiscard]] std::string head_text(const Options& options, int ranks, const Machine& machine);
[[nodiscard]] std::string text_of(const SizeResult& result, int ranks);
// One object, one line; the fields are in docs/guide/collectives.md.
[[nodiscard]] std::string json_of(const Options& options, int ranks, const Machine& machine,
                                  const std::vector<SizeResult>& results);

}  // namespace regroup::bench
