// Checks a ledger against what its header promises: recomputes the samples of each step from the
// seed. docs/design/ledger.md.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "elastic/ledger_format.h"
#include "elastic/sampler.h"

namespace regroup::ledger_tool {

// Greatest number of samples that are computed unless another one is given: some minutes' work. A
// header may promise any number.
inline constexpr std::uint64_t kMostComputed = 20'000'000'000;

// Takes the lines one after the other, and remembers one bit for each sample of an epoch.
class Verifier {
 public:
  explicit Verifier(std::uint64_t most_computed = kMostComputed) : most_computed_(most_computed) {}

  // Takes the first line, without its end. kDataLoss: it is no header of a ledger.
  [[nodiscard]] base::Status header(std::string_view text);
  void line(std::string_view text);  // any other line
  // The last line has no end: it does not count.
  void torn() { torn_ = true; }
  void end();

  // The first differences, each with its line: "line 43: step 42: ...".
  [[nodiscard]] const std::vector<std::string>& differences() const { return differences_; }
  [[nodiscard]] std::uint64_t number_of_differences() const { return count_; }
  [[nodiscard]] std::string summary() const;
  // What the file lacks at its begin or end, a sentence each. Empty: every step of the run has its
  // line, if the run has a number of epochs.
  [[nodiscard]] std::vector<std::string> missing() const;
  // The step from which on no samples were computed, since they were too many; empty: none.
  [[nodiscard]] std::optional<proto::Step> unchecked() const { return unchecked_; }

 private:
  using Step = proto::Step;
  void differ(const std::string& what);
  // Counts work as that of computing `samples`. False: it would be too much.
  [[nodiscard]] bool afford(std::uint64_t samples, Step step);
  void check_order(Step step);
  void check_whole(const elastic::LedgerLine& line, const elastic::Batch& batch);
  void check_leaf(const elastic::LedgerLine& line, const elastic::Batch& batch, std::uint32_t leaf);
  void begin_epoch(std::uint64_t epoch, Step step, bool from_its_first_step);
  void end_epoch();

  const std::uint64_t most_computed_;
  std::uint64_t computed_ = 0;
  std::optional<Step> unchecked_;
  elastic::LedgerHeader header_;
  std::optional<elastic::Sampler> sampler_;  // empty: the session has none
  std::uint64_t at_ = 1;                     // number of the present line
  Step next_ = 1;                            // the step that the next line should have
  std::uint64_t lines_ = 0;                  // of steps
  std::uint64_t samples_ = 0;                // in lines that are as they should be
  bool torn_ = false;
  std::optional<std::uint64_t> epoch_;    // of the last line
  bool whole_epoch_ = false;              // it began with its first step
  std::uint64_t differences_before_ = 0;  // at the begin of that epoch
  std::uint64_t complete_ = 0;            // epochs
  std::vector<bool> used_;                // of that epoch, by index of the sample
  std::uint64_t used_once_ = 0;           // number of bits set
  std::vector<std::string> differences_;
  std::uint64_t count_ = 0;
};

// Reads a file to its end, a line at a time. Fails if it cannot be read or is no ledger.
[[nodiscard]] base::Status read_ledger(std::FILE* file, const std::string& name, Verifier* out);

}  // namespace regroup::ledger_tool
