// Thousands of random schedules of kills, notices, resizes and coordinator restarts. Whatever the
// order of moves: the invariants of SimJob hold, and the job ends.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/membership/sim_job.h"

namespace regroup::membership {
namespace {

struct Menu {
  bool kill = false, notice = false, resize = false, restart = false, early_exit = false;
  bool lose_host = false, add_host = false;
  bool hosts = false;  // three of two slots
  bool transfers = false;
  bool spares = false;
  int faults = 4;
};

class RandomJob {
 public:
  RandomJob(unsigned seed, Menu menu) : random_(seed), menu_(menu), job_(options(seed, menu)) {}

  // False if the job came to no end.
  bool run() {
    int idle = 0;
    for (int move = 0; move < 60000 && !job_.end && job_.broken.empty(); ++move) {
      if (menu_.faults > 0 && below(40) == 0) fault();
      idle = one_move() ? 0 : idle + 1;
      if (idle > 20) job_.pass(std::chrono::milliseconds(100));
      job_.pass(std::chrono::microseconds(below(300)));
    }
    return job_.end.has_value();
  }

  SimJob& job() { return job_; }

 private:
  static SimOptions options(unsigned seed, const Menu& menu) {
    SimOptions o;
    o.policy.min = 1 + seed % 2;
    o.policy.target = 2 + seed / 2 % 3;
    o.policy.replace = seed % 5 != 0;
    o.arena_slots = 4 + seed % 4;
    if (menu.hosts) o.hosts = {2, 2, 2};
    if (menu.hosts) o.policy.by_node = seed % 3 != 0;
    if (menu.transfers) o.policy.kept_results = 1 + seed % 4;
    if (menu.transfers) o.steps = 30;
    if (menu.spares) o.policy.spares = 1 + seed % 2;
    if (menu.spares) o.arena_slots += o.policy.spares;
    if (menu.spares) o.policy.replace = true;
    return o;
  }

  unsigned below(unsigned n) { return std::uniform_int_distribution<unsigned>(0, n - 1)(random_); }

  bool one_move() {
    std::optional<proto::NodeId> node;
    if (menu_.hosts && !job_.hosts().empty()) node = any_host();
    switch (below(menu_.transfers ? 7 : 6)) {
      case 0:
        return job_.deliver_to_agent(node);
      case 1:
        return job_.deliver_to_coordinator(node);
      case 2:
        return job_.report_death(node);
      case 6:
        return !job_.hosts().empty() && job_.attend(any_host());
      default: {
        if (job_.members.empty()) return false;
        auto at = job_.members.begin();
        std::advance(at, below(static_cast<unsigned>(job_.members.size())));
        return job_.act(at->second);
      }
    }
  }

  proto::MemberId anybody() { return below(static_cast<unsigned>(job_.members.size())); }

  proto::NodeId any_host() {
    const auto hosts = job_.hosts();
    return hosts.at(below(static_cast<unsigned>(hosts.size())));
  }

  void fault() {
    if (job_.members.empty()) return;
    const unsigned kind = below(7);
    const bool wanted[] = {menu_.kill,       menu_.notice,    menu_.resize,  menu_.restart,
                           menu_.early_exit, menu_.lose_host, menu_.add_host};
    if (!wanted[kind]) return;
    --menu_.faults;
    const proto::MemberId id = anybody();
    if (kind == 0 && job_.members.contains(id)) job_.kill(id);
    if (kind == 1) (void)job_.ask(proto::NoticeRequest{id});
    if (kind == 2) (void)job_.ask(proto::ResizeRequest{1 + below(4)});
    if (kind == 3) job_.restart_coordinator(below(2) == 0);
    if (kind == 5 && job_.hosts().size() > 1) job_.lose_host(any_host());
    if (kind == 6) (void)job_.add_host(2);
    if (kind == 4 && job_.members.contains(id)) job_.exit(id, static_cast<int>(below(2)));
  }

  std::mt19937 random_;
  Menu menu_;
  SimJob job_;
};

std::string story(SimJob& job) {
  std::string out;
  for (const std::string& what : job.broken) out += "broken: " + what + "\n";
  for (const std::string& what : job.says) out += "  " + what + "\n";
  for (const auto& [id, m] : job.members) {
    out += fmt::format("  member {}: alive {} ready {} drained {} entered {} settled {} applied {}",
                       id, m.alive, m.ready, m.drained, m.world.generation, m.settled, m.applied);
    if (m.slot) {
      const shmem::MemberSlot& member_slot = job.agent(m.node).arena().member_slot(*m.slot);
      const proto::StateWord word = shmem::load_state<shmem::RealPolicy>(member_slot.state);
      out += fmt::format(" slot {} of {} phase {} g {} at {}.{} revoked up to {} left {} leave {}",
                         *m.slot, static_cast<int>(member_slot.occupied.load()) - 1,
                         static_cast<int>(word.phase), word.generation, word.position.step(),
                         word.position.section(), member_slot.revoked_up_to.load(),
                         member_slot.left_generation.load(), member_slot.leave_request.load());
    }
    out += "\n";
  }
  return out + job.coordinator->status_json(job.now);
}

struct Learned {
  std::uint64_t transfers = 0, results = 0,
                of_several = 0;  // jobs with a state transfer of several sources
};

void sweep(Menu menu, unsigned first, unsigned count, unsigned* successes,
           Learned* learned = nullptr) {
  for (unsigned seed = first; seed < first + count; ++seed) {
    RandomJob run(seed, menu);
    const bool ended = run.run();
    ASSERT_TRUE(run.job().broken.empty()) << "seed " << seed << "\n" << story(run.job());
    ASSERT_TRUE(ended) << "seed " << seed << " came to no end\n" << story(run.job());
    if (learned != nullptr) learned->transfers += run.job().transfers_read;
    if (learned != nullptr) learned->results += run.job().results_replayed;
    if (learned != nullptr) learned->of_several += run.job().most_sources > 1 ? 1 : 0;
    if (run.job().end->exit_code == 0) {
      ++*successes;
    } else if (!menu.kill && !menu.early_exit && !menu.lose_host) {
      ADD_FAILURE() << "seed " << seed << ": " << run.job().end->reason << "\n" << story(run.job());
    }
  }
}

TEST(RandomSchedules, WithoutFaultsEveryJobFinishes) {
  unsigned successes = 0;
  sweep({.faults = 0}, 1, 200, &successes);
  EXPECT_EQ(successes, 200U);
}

TEST(RandomSchedules, KillsAndEarlyExits) {
  unsigned successes = 0;
  sweep({.kill = true, .early_exit = true, .faults = 4}, 1000, 1200, &successes);
  EXPECT_GT(successes, 400U);
}

TEST(RandomSchedules, NoticesAndResizesLoseNothing) {
  unsigned successes = 0;
  sweep({.notice = true, .resize = true, .faults = 5}, 5000, 800, &successes);
  EXPECT_EQ(successes, 800U);
}

TEST(RandomSchedules, CoordinatorRestarts) {
  unsigned successes = 0;
  sweep({.restart = true, .faults = 3}, 9000, 600, &successes);
  EXPECT_EQ(successes, 600U);
}

TEST(RandomSchedules, Fault21_FaultsDuringRecoveryOfEveryKind) {
  unsigned successes = 0;
  sweep({.kill = true,
         .notice = true,
         .resize = true,
         .restart = true,
         .early_exit = true,
         .faults = 8},
        20000, 1500, &successes);
  EXPECT_GT(successes, 400U);
}

TEST(RandomSchedules, HostsAreLostAndCome) {
  unsigned successes = 0;
  sweep({.lose_host = true, .add_host = true, .hosts = true}, 40000, 700, &successes);
  EXPECT_GT(successes, 350U);
}

TEST(RandomSchedules, HostsMembersAndCoordinators) {
  unsigned successes = 0;
  sweep({.kill = true,
         .notice = true,
         .resize = true,
         .restart = true,
         .lose_host = true,
         .add_host = true,
         .hosts = true,
         .faults = 6},
        50000, 700, &successes);
  EXPECT_GT(successes, 400U);
}

TEST(RandomSchedules, WhoJoinsLearns) {
  unsigned successes = 0;
  Learned learned;
  sweep({.kill = true, .notice = true, .resize = true, .transfers = true, .faults = 6}, 60000, 300,
        &successes, &learned);
  EXPECT_GT(successes, 150U);
  EXPECT_GT(learned.transfers, 100U);
  EXPECT_GT(learned.results, 100U);
}

TEST(RandomSchedules, LearnersHostsAndCoordinators) {
  unsigned successes = 0;
  Learned learned;
  sweep({.kill = true,
         .notice = true,
         .resize = true,
         .restart = true,
         .lose_host = true,
         .add_host = true,
         .hosts = true,
         .transfers = true,
         .faults = 7},
        70000, 300, &successes, &learned);
  EXPECT_GT(successes, 200U);
  EXPECT_GT(learned.transfers, 100U);
  EXPECT_GT(learned.results, 100U);
  EXPECT_GT(learned.of_several, 5U);
}

TEST(RandomSchedules, SparesTakeThePlaceOfTheLost) {
  unsigned successes = 0;
  sweep({.kill = true,
         .notice = true,
         .resize = true,
         .restart = true,
         .early_exit = true,
         .spares = true,
         .faults = 6},
        80000, 300, &successes);
  EXPECT_GT(successes, 150U);
}

}  // namespace
}  // namespace regroup::membership
