// Where rank 0 tells what it measured: the terminal, and the files that were asked for.
#pragma once

#include <cstdint>
#include <vector>

#include "core/status.h"
#include "tools/bench/process.h"
#include "tools/bench/report.h"

namespace regroup::bench {

class Outlet {
 public:
  Outlet(const Options& options, int ranks);

  // Fails now if one of the files could not be written later, or the plot not drawn. Prints the head.
  [[nodiscard]] core::Status open();
  // Prints what is known of one size.
  void tell(const SizeResult& result);
  // Writes the files.
  [[nodiscard]] core::Status close();
  // Elements of our own results that were wrong so far.
  [[nodiscard]] std::uint64_t wrong() const { return wrong_; }

 private:
  [[nodiscard]] core::Status plot(const std::string& json);

  const Options& options_;
  const int ranks_;
  const Machine machine_;
  TemporaryFolder folder_;
  std::vector<SizeResult> results_;
  std::uint64_t wrong_ = 0;
};

}  // namespace regroup::bench
