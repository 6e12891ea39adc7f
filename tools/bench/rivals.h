// Other libraries measured in the same run. Their ranks live as long as the run and sleep while
// another runner is timed. Only rank 0 uses these classes, except RivalRunner.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "tools/bench/options.h"
#include "tools/bench/process.h"
#include "tools/bench/runner.h"

namespace regroup::bench {

// How the ranks of a rival are started.
struct RivalPlan {
  std::string name;             // "Open MPI 5.0.11, coll sm"
  std::vector<Words> commands;  // launchers, or the ranks themselves
};

// Finds the version and tuning of each baseline on this machine and builds its program in `folder`.
// The message of an error names what is missing.
[[nodiscard]] base::Result<std::vector<RivalPlan>> plan_rivals(
    const std::vector<Baseline>& baselines, int ranks, const TemporaryFolder& folder,
    base::TimePoint deadline);

// A rival whose ranks run. rival_mpi.c lists the lines that its ranks accept.
class Rival {
 public:
  [[nodiscard]] static base::Result<std::unique_ptr<Rival>> start(const RivalPlan& plan, int ranks,
                                                                  const TemporaryFolder& folder,
                                                                  base::Duration timeout);
  ~Rival();
  Rival(const Rival&) = delete;
  Rival& operator=(const Rival&) = delete;

  [[nodiscard]] const std::string& name() const { return name_; }
  // Sends `line` to all ranks. Returns their answers without the first word, which must be
  // `expected`. If a rank answers "no WHY", returns kUnavailable with WHY as the message.
  [[nodiscard]] base::Result<std::vector<std::string>> ask(const std::string& line,
                                                           const std::string& expected);

 private:
  Rival(std::string name, base::Duration timeout) : name_(std::move(name)), timeout_(timeout) {}
  [[nodiscard]] base::Status meet(int listener, int ranks);
  [[nodiscard]] base::Result<std::string> read_line(std::size_t rank, base::TimePoint deadline);
  [[nodiscard]] base::Status lost(const std::string& what) const;

  const std::string name_;
  const base::Duration timeout_;
  std::vector<Process> processes_;
  struct Link {
    base::Fd socket;
    std::string unread;
  };
  std::vector<Link> links_;
};

// All rivals of a run.
class RivalRanks {
 public:
  // Starts all; each has `timeout`.
  [[nodiscard]] base::Status start(const std::vector<Baseline>& baselines, int ranks,
                                   base::Duration timeout);
  [[nodiscard]] const std::vector<std::unique_ptr<Rival>>& all() const { return rivals_; }

 private:
  TemporaryFolder folder_;
  std::vector<std::unique_ptr<Rival>> rivals_;  // after folder_: destroyed before it
};

// Measures a rival. `rival` is null on all ranks but 0.
class RivalRunner final : public Runner {
 public:
  RivalRunner(Job& job, Rival* rival, const Case& c);
  [[nodiscard]] base::Result<std::uint64_t> verify(std::uint64_t iteration) override;
  [[nodiscard]] base::Result<std::vector<double>> time(const Turn& turn) override;
  // Why the rival cannot run this case; "" if it can.
  [[nodiscard]] const std::string& refusal() const { return refusal_; }

 private:
  [[nodiscard]] base::Result<std::uint64_t> ask_wrong(std::uint64_t iteration);

  Job& job_;
  Rival* const rival_;
  const Case case_;
  std::string refusal_;
};

}  // namespace regroup::bench
