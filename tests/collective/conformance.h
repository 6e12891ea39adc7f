// The conformance suite: what every backend of Communicator promises. A backend joins it so:
//   constexpr Backend kMine{"Mine", /*processes=*/true, make_my_job};
//   INSTANTIATE_TEST_SUITE_P(Mine, Conformance, ::testing::ValuesIn(sizes_of(kMine)),
//   name_of_setting); INSTANTIATE_TEST_SUITE_P(Mine, Sums,
//   ::testing::ValuesIn(sizes_to_nine_of(kMine)), name_of_setting); INSTANTIATE_TEST_SUITE_P(Mine,
//   Failures, ::testing::Values(Setting{kMine, 4}), name_of_setting);
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "tests/collective/exchange.h"
#include "tests/collective/harness.h"
#include "tests/collective/job.h"

namespace regroup::collective::testing {

struct Setting {
  Backend backend;
  int ranks;
};
[[nodiscard]] std::string name_of_setting(const ::testing::TestParamInfo<Setting>& info);
// One for each of some numbers of ranks; of all from 1 to 9.
[[nodiscard]] std::vector<Setting> sizes_of(const Backend& backend);
[[nodiscard]] std::vector<Setting> sizes_to_nine_of(const Backend& backend);

// Words that ranks and agent share, processes too.
struct Board {
  std::atomic<std::uint64_t> mark[64];   // by rank: how far it is
  std::atomic<std::uint64_t> through;    // ranks, or operations, that came to an end
  std::atomic<std::uint64_t> announced;  // the newest generation that ranks may open
  std::atomic<bool> inside;              // the victim is in an operation
};

class Conformance : public ::testing::TestWithParam<Setting> {
 protected:
  Conformance();
  ~Conformance() override;

  using Body = std::function<void(Job& job, int rank)>;
  // Runs `body` in every rank and `agent` concurrently.
  void run(
      const Body& body, const std::function<void()>& agent = [] {}, int may_die = -1);
  // Runs `body` with the communicator of generation 1 in every rank.
  void with_communicator(const std::function<void(Communicator&)>& body);

  [[nodiscard]] int ranks() const { return GetParam().ranks; }
  [[nodiscard]] bool processes() const { return GetParam().backend.processes; }

  std::unique_ptr<Job> job_;
  Board* board_;
};

// Of partial sums.
class Sums : public Conformance {};

// With four ranks.
class Failures : public Conformance {
 protected:
  // In a rank: leaves `g` and runs an operation in g + 1, without `absent`.
  void next_generation_works(Job& job, proto::Generation g, int rank,
                             const std::vector<int>& absent);
  // A new job and an empty board.
  void reset();
  // A member is killed in a row of operations of `kind`, at rank 0's operation `moment`; whether in
  // one.
  [[nodiscard]] bool kill_in(Kind kind, std::uint64_t moment);
  // A member stops, or leaves, and the others report the rank for which they wait.
  void names_the_absent(bool leaves);
  // As the agent: `rank` is dead, `g` is over.
  void bury_and_revoke(int rank, proto::Generation g);
};

}  // namespace regroup::collective::testing
