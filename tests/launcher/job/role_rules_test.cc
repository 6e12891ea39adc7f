// Every end of every kind of member under both policies, restarts used up, and the ends of jobs.
#include "launcher/job/role_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace regroup::job {

void PrintTo(const RoleAction& action, std::ostream* out) {
  if (const auto* a = std::get_if<StartMember>(&action))
    *out << "start " << a->rank << "/" << a->restarts;
  if (const auto* a = std::get_if<StartLater>(&action)) *out << "later " << a->rank;
  if (std::holds_alternative<StopMembers>(action)) *out << "stop";
  if (const auto* a = std::get_if<EndJob>(&action)) *out << "end " << a->status;
  if (const auto* a = std::get_if<Tell>(&action)) *out << "tell \"" << a->text << "\"";
}

namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;
using Actions = std::vector<RoleAction>;

RoleAction start(std::uint32_t rank, std::uint32_t restarts) { return StartMember{rank, restarts}; }
RoleAction later(std::uint32_t rank, base::Duration after) { return StartLater{rank, after}; }
RoleAction stop() { return StopMembers{}; }
RoleAction end(int status) { return EndJob{status}; }
RoleAction tell(std::string text) { return Tell{std::move(text)}; }

MemberEnd well(std::uint32_t rank) { return {rank, 0, "(pid 5) exited with code 0"}; }
MemberEnd killed(std::uint32_t rank) {
  return {rank, 137, "(pid 5) was killed by signal 9 (SIGKILL)"};
}

// Ranks: chief 0, workers 1 and 2, ps 3, evaluator 4.
const std::vector<Role> kAll{{"chief", 1}, {"worker", 2}, {"ps", 1}, {"evaluator", 1}};
const std::vector<Role> kWorkers{{"worker", 2}};

Actions without_words(Actions actions) {
  std::erase_if(actions,
                [](const RoleAction& action) { return std::holds_alternative<Tell>(action); });
  return actions;
}

TEST(RoleRules, StartsEverybody) {
  EXPECT_THAT(RoleRules(kWorkers, {}).start(), ElementsAre(start(0, 0), start(1, 0)));
}

TEST(RoleRules, AMemberIsFinalWhenItIsNotStartedAgain) {
  std::vector<Role> workers{{"worker", 3}};
  workers[0].min_failed = 2;
  RoleRules rules(workers, {.max_restarts = 1});
  static_cast<void>(rules.on_end(killed(0)));
  EXPECT_FALSE(rules.is_final(0));
  static_cast<void>(rules.on_end(killed(0)));
  EXPECT_TRUE(rules.is_final(0));
  static_cast<void>(rules.on_end(well(1)));
  EXPECT_TRUE(rules.is_final(1));
  EXPECT_FALSE(rules.is_final(2));
}

TEST(RoleRules, ReplacesAWorkerAndAnEvaluator) {
  for (const bool whole_job : {false, true}) {
    RoleRules rules(kAll, {.whole_job = whole_job});
    EXPECT_THAT(rules.on_end(killed(2)),
                ElementsAre(tell("rank 2 (worker 1) (pid 5) was killed by signal 9 (SIGKILL): "
                                 "restarting it (restart 1 of 3)"),
                            start(2, 1)));
    EXPECT_THAT(without_words(rules.on_end(killed(4))), ElementsAre(start(4, 1)));
  }
}

// MPI_COMM_WORLD admits no new member: a member that has called MPI_Init is replaced together with
// all others.
TEST(RoleRules, StartsTheWholeJobAgainAfterAMemberThatWasInMpi) {
  for (const auto mpi : {MemberEnd::Mpi::kInside, MemberEnd::Mpi::kLeft}) {
    RoleRules rules(kWorkers, {.max_restarts = 1});
    MemberEnd lost = killed(1);
    lost.mpi = mpi;
    EXPECT_THAT(
        rules.on_end(lost),
        ElementsAre(
            tell("rank 1 (worker 1) (pid 5) was killed by signal 9 (SIGKILL): no process can "
                 "replace it in MPI_COMM_WORLD: restarting the whole job (restart 1 of 1)"),
            stop()));
    EXPECT_THAT(rules.on_end(killed(0)), ElementsAre(start(0, 1), start(1, 1)));
    EXPECT_THAT(without_words(rules.on_end(lost)), ElementsAre(end(137)));
  }
  MemberEnd chief = killed(0);
  chief.mpi = MemberEnd::Mpi::kInside;
  EXPECT_THAT(without_words(RoleRules(kAll, {}).on_end(chief)), ElementsAre(end(137)));
}

TEST(RoleRules, GoesOnWithoutAMemberOnlyWhereNobodyWaitsForIt) {
  const std::vector<Role> roles{{.name = "worker", .count = 2, .min_failed = 0}};
  MemberEnd lost = killed(1);
  lost.mpi = MemberEnd::Mpi::kLeft;
  EXPECT_THAT(without_words(RoleRules(roles, {.max_restarts = 0}).on_end(lost)), IsEmpty());
  lost.mpi = MemberEnd::Mpi::kInside;
  EXPECT_THAT(without_words(RoleRules(roles, {.max_restarts = 0}).on_end(lost)),
              ElementsAre(end(137)));
}

TEST(RoleRules, EndsWithTheStatusOfALostChiefOrPs) {
  EXPECT_THAT(
      RoleRules(kAll, {}).on_end({0, 3, "(pid 7) exited with code 3"}),
      ElementsAre(tell("rank 0 (chief 0) (pid 7) exited with code 3: ending the job"), end(3)));
  EXPECT_THAT(without_words(RoleRules(kAll, {}).on_end(killed(3))), ElementsAre(end(137)));
}

MemberEnd in_mpi(MemberEnd end) {
  end.mpi = MemberEnd::Mpi::kInside;
  return end;
}

TEST(RoleRules, WhoFailsInMpiMayHaveLostOneWhoIsNotHeardOfYet) {
  RoleRules rules({{"chief", 1}, {"worker", 2}}, {.max_restarts = 1});
  const auto aborted = [](std::uint32_t rank) {
    return in_mpi({rank, 15, "(pid 5) called MPI_Abort with status 15"});
  };
  MemberEnd lost = in_mpi(killed(1));
  lost.killed = true;
  EXPECT_TRUE(rules.may_follow_another(aborted(0)));
  EXPECT_TRUE(rules.may_follow_another(aborted(2)));
  EXPECT_FALSE(rules.may_follow_another(lost)) << "nobody's end does that";
  EXPECT_FALSE(rules.may_follow_another({0, 15, "failed before MPI"}));
  EXPECT_FALSE(rules.may_follow_another(in_mpi(well(0))));
  EXPECT_THAT(without_words(rules.on_end(lost)), ElementsAre(stop()));
  EXPECT_FALSE(rules.may_follow_another(aborted(0))) << "all are being stopped";
  EXPECT_THAT(rules.on_end(aborted(0)), IsEmpty());
  EXPECT_THAT(rules.on_end(killed(2)), ElementsAre(start(0, 1), start(1, 1), start(2, 1)));
  EXPECT_THAT(without_words(rules.on_end(aborted(0))), ElementsAre(end(15)));
  EXPECT_FALSE(rules.may_follow_another(aborted(1))) << "it is over";
}

// MPICH over UCX ends so when it loses its peer.
TEST(RoleRules, WhoEndsByAFaultOfItsOwnMayFollowAnother) {
  for (const int fault : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGPIPE, SIGSYS, SIGTRAP})
    EXPECT_TRUE(is_own_fault(fault)) << fault;
  for (const int other : {0, SIGKILL, SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGXCPU})
    EXPECT_FALSE(is_own_fault(other)) << other;
}

TEST(RoleRules, WhoIsLeftAloneHasLostNobody) {
  RoleRules rules({{"chief", 1}, {"worker", 1}}, {});
  EXPECT_THAT(rules.on_end(well(1)), IsEmpty());
  EXPECT_FALSE(rules.may_follow_another(in_mpi({0, 15, "aborted"})));
}

TEST(RoleRules, BacksOffAndGivesUp) {
  RoleRules rules(kAll, {.max_restarts = 4, .longest_back_off = seconds(3)});
  EXPECT_THAT(without_words(rules.on_end(killed(1))), ElementsAre(start(1, 1)));
  EXPECT_THAT(rules.on_end(killed(1)),
              ElementsAre(tell("rank 1 (worker 0) (pid 5) was killed by signal 9 "
                               "(SIGKILL): restarting it in 1 s (restart 2 of 4)"),
                          later(1, seconds(1))));
  EXPECT_THAT(rules.on_due(1), ElementsAre(start(1, 2)));
  EXPECT_THAT(rules.on_due(1), IsEmpty());  // it runs
  EXPECT_THAT(without_words(rules.on_end(killed(1))), ElementsAre(later(1, seconds(2))));
  EXPECT_THAT(rules.on_due(1), ElementsAre(start(1, 3)));
  EXPECT_THAT(without_words(rules.on_end(killed(2))), ElementsAre(start(2, 1)));  // its own count
  EXPECT_THAT(without_words(rules.on_end(killed(1))), ElementsAre(later(1, seconds(3))));
  EXPECT_THAT(rules.on_due(1), ElementsAre(start(1, 4)));
  EXPECT_THAT(
      rules.on_end(killed(1)),
      ElementsAre(
          tell("rank 1 (worker 0) (pid 5) was killed by signal 9 (SIGKILL) after 4 restarts: "
               "ending the job"),
          end(137)));
}

TEST(RoleRules, StartsNobodyAgainWithoutRestarts) {
  for (const bool whole_job : {false, true}) {
    for (std::uint32_t rank = 0; rank < 5; ++rank) {
      RoleRules rules(kAll, {.whole_job = whole_job, .max_restarts = 0});
      EXPECT_THAT(without_words(rules.on_end(killed(rank))), ElementsAre(end(137))) << rank;
    }
  }
}

TEST(RoleRules, StartsTheWholeJobAgainWhenAllHaveEnded) {
  for (const std::uint32_t lost : {0U, 3U}) {  // chief, ps
    RoleRules rules(kAll, {.whole_job = true, .max_restarts = 1});
    EXPECT_THAT(without_words(rules.on_end(killed(1))), ElementsAre(start(1, 1)));
    EXPECT_THAT(without_words(rules.on_end(killed(lost))), ElementsAre(stop()));
    for (const std::uint32_t rank : {1U, 2U, 3U - lost})
      EXPECT_THAT(rules.on_end(killed(rank)), IsEmpty());
    EXPECT_THAT(rules.on_end(well(4)),  // the last one, however it ended
                ElementsAre(start(0, 1), start(1, 1), start(2, 1), start(3, 1), start(4, 1)));
    EXPECT_THAT(without_words(rules.on_end(killed(1))),
                ElementsAre(start(1, 2)));  // it has a restart again
    EXPECT_THAT(without_words(rules.on_end(killed(lost))), ElementsAre(end(137)));
  }
}

TEST(RoleRules, DropsAWaitingStartWhenTheWholeJobStartsAgain) {
  RoleRules rules({{"worker", 1}, {"ps", 1}}, {.whole_job = true});
  EXPECT_THAT(without_words(rules.on_end(killed(0))), ElementsAre(start(0, 1)));
  EXPECT_THAT(without_words(rules.on_end(killed(0))), ElementsAre(later(0, seconds(1))));
  EXPECT_THAT(without_words(rules.on_end(killed(1))),
              ElementsAre(stop(), start(0, 1), start(1, 1)));
  EXPECT_THAT(rules.on_due(0), IsEmpty());
}

TEST(RoleRules, WaitsBeforeTheSecondStartOfTheWholeJob) {
  RoleRules rules(kWorkers, {.whole_job = true});
  EXPECT_THAT(without_words(rules.on_end(killed(0))), ElementsAre(stop()));
  EXPECT_THAT(rules.on_end(killed(1)), ElementsAre(start(0, 1), start(1, 1)));
  EXPECT_THAT(without_words(rules.on_end(killed(1))), ElementsAre(stop()));
  EXPECT_THAT(rules.on_end(killed(0)), ElementsAre(later(0, seconds(1)), later(1, seconds(1))));
  EXPECT_THAT(rules.on_due(1), ElementsAre(start(1, 2)));
  EXPECT_THAT(without_words(rules.on_end(killed(1))),
              ElementsAre(stop(), later(0, seconds(2)), later(1, seconds(2))));
}

TEST(RoleRules, WorkersThatAllReduceAreReplacedOneByOneUnlessTheJobIsTo) {
  EXPECT_THAT(without_words(RoleRules(kWorkers, {}).on_end(killed(1))), ElementsAre(start(1, 1)));
  EXPECT_THAT(without_words(RoleRules(kWorkers, {.whole_job = true}).on_end(killed(1))),
              ElementsAre(stop()));
}

TEST(RoleRules, IsOverWhenTheChiefOfAPsJobIs) {
  RoleRules rules(kAll, {});
  EXPECT_THAT(rules.on_end(well(1)), IsEmpty());
  EXPECT_THAT(rules.on_end(well(3)), IsEmpty());
  EXPECT_THAT(rules.on_end(well(0)), ElementsAre(end(0)));
  EXPECT_THAT(rules.on_end(killed(2)), IsEmpty());  // what it is ended with decides nothing
  EXPECT_THAT(rules.on_due(2), IsEmpty());
}

TEST(RoleRules, WithoutAPsAwaitsChiefAndWorkers) {
  RoleRules rules({{"chief", 1}, {"worker", 1}, {"evaluator", 1}}, {});
  EXPECT_THAT(rules.on_end(well(0)), IsEmpty());
  EXPECT_THAT(without_words(rules.on_end(killed(1))), ElementsAre(start(1, 1)));
  EXPECT_THAT(rules.on_end(well(1)), ElementsAre(end(0)));
}

TEST(RoleRules, WithoutAChiefAwaitsTheWorkers) {
  RoleRules rules({{"ps", 1}, {"worker", 2}}, {});
  EXPECT_THAT(rules.on_end(well(2)), IsEmpty());
  EXPECT_THAT(rules.on_end(well(1)), ElementsAre(end(0)));
}

TEST(RoleRules, WithoutBothAwaitsEverybody) {
  RoleRules rules({{"ps", 1}, {"evaluator", 1}}, {});
  EXPECT_THAT(rules.on_end(well(0)), IsEmpty());
  EXPECT_THAT(rules.on_end(well(1)), ElementsAre(end(0)));
}

TEST(RoleRules, AnyOtherRoleIsOfWorkers) {
  RoleRules rules({{"trainer", 2}}, {});
  EXPECT_THAT(without_words(rules.on_end(killed(0))), ElementsAre(start(0, 1)));
  EXPECT_THAT(rules.on_end(well(1)), IsEmpty());
  EXPECT_THAT(rules.on_end(well(0)), ElementsAre(end(0)));
}

TEST(RoleRules, CountsFailuresAndSuccessesOfARole) {
  RoleRules two({{"worker", 3, 0, {}, /*min_failed=*/2}}, {.max_restarts = 0});
  EXPECT_THAT(two.on_end(killed(0)),
              ElementsAre(tell("rank 0 (worker 0) (pid 5) was killed by signal 9 "
                               "(SIGKILL): continuing without it")));
  EXPECT_THAT(without_words(two.on_end(killed(2))), ElementsAre(end(137)));

  RoleRules never({{"worker", 2, 0, {}, /*min_failed=*/0}}, {.max_restarts = 0});
  EXPECT_THAT(without_words(never.on_end(killed(0))), IsEmpty());
  EXPECT_THAT(without_words(never.on_end(killed(1))), ElementsAre(end(0)));

  RoleRules enough({{"ps", 1}, {"worker", 3, 0, {}, 1, /*min_succeeded=*/2}}, {});
  EXPECT_THAT(enough.on_end(well(1)), IsEmpty());
  EXPECT_THAT(enough.on_end(well(3)), ElementsAre(end(0)));
}

}  // namespace
}  // namespace regroup::job
