// The conformance suite: tests what every backend of Communicator must do. To test a backend:
//
//   using ::testing::ValuesIn;
//   constexpr Backend kMine{"Mine", /*processes=*/true, make_my_job};
//   INSTANTIATE_TEST_SUITE_P(Mine, Conformance, ValuesIn(sizes_of(kMine)), name_of_setting);
//   INSTANTIATE_TEST_SUITE_P(Mine, Sums, ValuesIn(sizes_to_nine_of(kMine)), name_of_setting);
//   INSTANTIATE_TEST_SUITE_P(Mine, Failures, ::testing::Values(Setting{kMine, 4}),
//                            name_of_setting);
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
// Settings with several numbers of ranks; with every number from 1 to 9.
[[nodiscard]] std::vector<Setting> sizes_of(const Backend& backend);
[[nodiscard]] std::vector<Setting> sizes_to_nine_of(const Backend& backend);

// Memory that the ranks and the test share, also if ranks are processes.
struct Board {
  std::atomic<std::uint64_t> mark[64];   // the progress of each rank
  std::atomic<std::uint64_t> through;    // the number of ranks, or operations, that have ended
  std::atomic<std::uint64_t> announced;  // the newest generation that ranks may open
  std::atomic<bool> inside;              // the victim is in an operation
};

class Conformance : public ::testing::TestWithParam<Setting> {
 protected:
  Conformance();
  ~Conformance() override;

  using Body = std::function<void(TestJob& job, int rank)>;
  // Runs `body` in every rank and `agent` concurrently.
  void run(
      const Body& body, const std::function<void()>& agent = [] {}, int may_die = -1);
  // Runs `body` with the communicator of generation 1 in every rank.
  void with_communicator(const std::function<void(Communicator&)>& body);

  [[nodiscard]] int ranks() const { return GetParam().ranks; }
  [[nodiscard]] bool processes() const { return GetParam().backend.processes; }

  std::unique_ptr<TestJob> job_;
  Board* board_;
};

// Tests of partial sums.
class Sums : public Conformance {};

// Tests of failures, with four ranks.
class Failures : public Conformance {
 protected:
  // To be called in a rank: leaves `g` and runs an operation in g + 1, without `absent`.
  void next_generation_works(TestJob& job, proto::Generation g, int rank,
                             const std::vector<int>& absent);
  // Makes a new job and clears the board.
  void reset();
  // Runs a sequence of operations of `kind` and kills a member when rank 0 is at operation
  // `moment`. Returns whether the member was inside an operation.
  [[nodiscard]] bool kill_in(Kind kind, std::uint64_t moment);
  // Tests that the other ranks name the rank for which they wait when a member stops, or leaves.
  void names_the_absent(bool leaves);
  // Acts as the agent: reports `rank` dead and revokes `g`.
  void bury_and_revoke(int rank, proto::Generation g);
};

}  // namespace regroup::collective::testing
