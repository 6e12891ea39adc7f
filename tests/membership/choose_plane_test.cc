// Which data plane a World gets, for all planes, memories and numbers of hosts, and the sentence.
#include "membership/choose_plane.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <vector>

namespace regroup::membership {
namespace {

using proto::Plane;
using proto::PlaneFacts;
using testing::HasSubstr;

constexpr std::array kAll{Plane::kShm, Plane::kStaged, Plane::kCuda,
                          Plane::kUcx, Plane::kNccl,   Plane::kMpi};

class ChoosePlane : public testing::Test {
 protected:
  PlaneFacts& add(proto::NodeId node, bool device) {
    PlaneFacts& facts = facts_.emplace_back();
    facts.device = device;
    members_.push_back({static_cast<proto::MemberId>(members_.size()), node,
                        several_hosts_ ? std::string(1, static_cast<char>('a' + node)) : "",
                        &facts});
    return facts;
  }
  // Two members, on one host or two, with everything viable but `missing`.
  void job(bool device, bool several_hosts, const std::vector<Plane>& missing = {}) {
    members_.clear();
    facts_.clear();
    several_hosts_ = several_hosts;
    for (const proto::NodeId node : {0U, several_hosts ? 1U : 0U}) {
      PlaneFacts& facts = add(node, device);
      for (const Plane plane : missing) set(facts, plane, "a reason");
    }
  }
  static void set(PlaneFacts& facts, Plane plane, const std::string& reason) {
    facts.reasons[static_cast<std::size_t>(plane)] = reason;
  }
  PlaneVerdict choose(PlaneRequest request = {}) const { return choose_plane(members_, request); }

  bool several_hosts_ = false;
  std::deque<PlaneFacts> facts_;
  std::vector<PlaneMember> members_;
};

TEST_F(ChoosePlane, AutoTakesTheFastestPlaneThatAllCallViable) {
  struct Row {
    bool device, several_hosts;
    std::vector<Plane> missing;
    const char* sentence;
  };
  const Row rows[] = {
      {false, false, {}, "shm: the members are on one host"},
      {false, true, {}, "ucx: the members are on 2 hosts (a, b)"},
      {true, false, {}, "cuda: the members are on one host"},
      {true, false, {Plane::kCuda}, "staged over shm: cuda is not viable: a reason"},
      {true, true, {}, "nccl: the members are on 2 hosts (a, b)"},
      {true, true, {Plane::kNccl}, "staged over ucx: nccl is not viable: a reason"},
      {true, false, {Plane::kCuda, Plane::kUcx}, "staged over shm: cuda is not viable: a reason"},
  };
  for (const Row& row : rows) {
    job(row.device, row.several_hosts, row.missing);
    const PlaneVerdict verdict = choose();
    EXPECT_EQ(verdict.sentence, row.sentence);
    EXPECT_TRUE(verdict.plane);
  }
  job(false, true, {Plane::kUcx});
  EXPECT_FALSE(choose().plane);
  EXPECT_EQ(choose().sentence,
            "no data plane serves 2 members on 2 hosts (a, b): ucx is not viable: a reason");
  job(true, true, {Plane::kNccl, Plane::kUcx});
  EXPECT_EQ(
      choose().sentence,
      "no data plane serves 2 members on 2 hosts (a, b): nccl is not viable: a reason; staged "
      "is not viable: ucx: a reason");
}

// Whatever is missing, and in which of the members: the plane serves all, or there is a sentence.
TEST_F(ChoosePlane, EveryCombinationOfFactsHasAPlaneThatWorksOrAReason) {
  for (unsigned bits = 0; bits < 1U << 14; ++bits) {
    job((bits & 1U) != 0, (bits & 2U) != 0);
    for (std::size_t i = 0; i < 2; ++i) {
      for (std::size_t plane = 0; plane < proto::kPlanes; ++plane) {
        if ((bits >> (2 + 6 * i + plane) & 1U) != 0) facts_[i].reasons[plane] = "r";
      }
    }
    const bool device = (bits & 1U) != 0, several = (bits & 2U) != 0;
    for (std::size_t named = 0; named <= kAll.size(); ++named) {
      const PlaneRequest request = named < kAll.size() ? PlaneRequest(kAll[named]) : std::nullopt;
      const PlaneVerdict verdict = choose(request);
      ASSERT_FALSE(verdict.sentence.empty());
      if (!verdict.plane) continue;
      const Plane plane = *verdict.plane;
      ASSERT_TRUE(!request || plane == *request);
      ASSERT_TRUE(facts_[0].reason(plane).empty() && facts_[1].reason(plane).empty());
      ASSERT_FALSE(several && (plane == Plane::kShm || plane == Plane::kCuda)) << bits;
      ASSERT_FALSE(
          several && plane == Plane::kStaged &&
          (!facts_[0].reason(Plane::kUcx).empty() || !facts_[1].reason(Plane::kUcx).empty()));
      ASSERT_FALSE(device && (plane == Plane::kShm || plane == Plane::kUcx || plane == Plane::kMpi))
          << bits;
      ASSERT_FALSE(!device &&
                   (plane == Plane::kStaged || plane == Plane::kCuda || plane == Plane::kNccl))
          << bits;
    }
    // Where auto finds none, none that is requested works, except those that auto never takes.
    if (choose().plane) continue;
    for (const Plane plane : kAll) {
      const bool never_auto =
          plane == Plane::kMpi || ((plane == Plane::kUcx || plane == Plane::kNccl) && !several);
      ASSERT_TRUE(never_auto || !choose(plane).plane) << bits << " " << name_of(plane);
    }
  }
}

TEST_F(ChoosePlane, ARequestedPlaneIsTakenOrRefusedWithWhatWouldFit) {
  struct Row {
    bool device, several_hosts;
    Plane plane;
    const char* sentence;  // "": it is taken
  };
  const Row rows[] = {
      {false, false, Plane::kShm, ""},
      {false, false, Plane::kUcx, ""},
      {false, false, Plane::kMpi, ""},
      {true, false, Plane::kStaged, ""},
      {true, true, Plane::kStaged, ""},
      {true, false, Plane::kCuda, ""},
      {true, true, Plane::kNccl, ""},
      {false, true, Plane::kShm,
       "--plane shm: it serves one host, the members are on 2 hosts (a, b); --plane ucx fits"},
      {true, true, Plane::kCuda,
       "--plane cuda: it serves one host, the members are on 2 hosts (a, b); --plane nccl fits"},
      {false, false, Plane::kNccl,
       "--plane nccl: it sums gradients in memory of a GPU, those of member 0 are in the host's "
       "memory; --plane shm fits"},
      {false, false, Plane::kStaged,
       "--plane staged: it sums gradients in memory of a GPU, those of member 0 are in the host's "
       "memory; --plane shm fits"},
      {true, true, Plane::kUcx,
       "--plane ucx: it sums gradients in the host's memory, those of member 0 (host a) are in "
       "memory of a GPU; --plane nccl fits"},
      {true, false, Plane::kShm,
       "--plane shm: it sums gradients in the host's memory, those of member 0 are in memory of a "
       "GPU; --plane cuda fits"},
  };
  for (const Row& row : rows) {
    job(row.device, row.several_hosts);
    const PlaneVerdict verdict = choose(row.plane);
    const bool taken = std::string(row.sentence).empty();
    EXPECT_EQ(verdict.plane.has_value(), taken) << verdict.sentence;
    if (taken) {
      EXPECT_THAT(verdict.sentence, HasSubstr(": requested (--plane)"));
    } else {
      EXPECT_EQ(verdict.sentence, row.sentence);
    }
  }
  job(true, false, {Plane::kCuda});
  EXPECT_EQ(choose(Plane::kCuda).sentence,
            "--plane cuda: it is not viable: a reason; --plane staged fits");
}

TEST_F(ChoosePlane, TheMemberWithoutThePlaneIsNamedUnlessAllAreAlike) {
  job(true, true);
  set(facts_[1], Plane::kNccl, "no libnccl.so.2");
  EXPECT_EQ(choose().sentence,
            "staged over ucx: nccl is not viable: member 1 (host b): no libnccl.so.2");
  set(facts_[0], Plane::kNccl, "no libnccl.so.2");
  EXPECT_EQ(choose().sentence, "staged over ucx: nccl is not viable: no libnccl.so.2");
}

TEST_F(ChoosePlane, MembersWithAndWithoutAGpuAreRefusedByName) {
  job(true, true);
  add(0, false);
  for (const PlaneRequest& request : {PlaneRequest(), PlaneRequest(Plane::kMpi)}) {
    EXPECT_FALSE(choose(request).plane);
    EXPECT_EQ(choose(request).sentence,
              "member 2 (host a): its gradients are in the host's memory, those of member 0 (host "
              "a) in memory of a GPU; all members of a job need theirs in the same kind of memory");
  }
  EXPECT_EQ(other_memory(members_[1], members_[0]), "");
}

TEST_F(ChoosePlane, AMemberThatSaysNothingCanDoWhatThereWasBeforePlanes) {
  job(true, false);
  members_[0].facts = nullptr;
  EXPECT_EQ(choose().sentence,
            "staged over shm: cuda is not viable: member 0: its version has no such plane");
  members_[1].facts = nullptr;
  EXPECT_EQ(choose().sentence, "shm: the members are on one host");
}

TEST_F(ChoosePlane, UcxOnOneHostIsNotForAMemberThatSaysNothing) {
  job(false, false);
  members_[1].facts = nullptr;
  const auto verdict = choose(Plane::kUcx);
  EXPECT_FALSE(verdict.plane);
  EXPECT_EQ(verdict.sentence,
            "--plane ucx: it is not viable: member 1: its version uses ucx between hosts only; "
            "--plane shm fits");
  job(false, true);
  members_[1].facts = nullptr;
  EXPECT_EQ(choose(Plane::kUcx).plane, Plane::kUcx);
}

TEST_F(ChoosePlane, TheTextOfAMemberIsShortenedAndEscaped) {
  job(true, false, {Plane::kCuda});
  set(facts_[0], Plane::kCuda, "\x1b[2J" + std::string(10'000, 'x'));
  EXPECT_LT(choose().sentence.size(), 400U);
  EXPECT_THAT(choose().sentence, HasSubstr(R"(\x1b[2J)"));
}

}  // namespace
}  // namespace regroup::membership
