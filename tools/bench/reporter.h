// Rank 0 reports what was measured: to the terminal, and to the files of --json and --plot.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "tools/bench/process.h"
#include "tools/bench/report.h"

namespace regroup::bench {

class Reporter {
 public:
  Reporter(const Options& options, int ranks);

  // Prints the head. Fails if close() could not write one of the files or draw the plot.
  [[nodiscard]] base::Status open();
  // Prints the rows of one size.
  void report(const SizeResult& result);
  // Writes the files.
  [[nodiscard]] base::Status close();
  // The number of wrong elements in our own results so far.
  [[nodiscard]] std::uint64_t wrong() const { return wrong_; }

 private:
  [[nodiscard]] base::Status plot(const std::string& json);

  const Options& options_;
  const int ranks_;
  const Machine machine_;
  TemporaryFolder folder_;
  std::vector<SizeResult> results_;
  std::uint64_t wrong_ = 0;
};

}  // namespace regroup::bench
