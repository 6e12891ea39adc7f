// Which member gets which device line, what the members of a host are told of lines, and what
// becomes of the line of a member that has died.
#include "membership/agent/device_lines.h"

#include <gmock/gmock.h>

#include "membership/agent/agent_core.h"

namespace regroup::membership {
namespace {

using proto::Join, proto::MemberId;
using testing::ElementsAre;

constexpr std::uint64_t kUnit = 2 << 20;  // a GPU's granularity

class DeviceLinesTest : public testing::Test {
 protected:
  AgentEffects join(MemberId id, const std::string& gpu = "GPU-a") {
    (void)agent_.handle({}, {1, proto::Start{.member = id}});
    return say(id, Join{.member = id,
                        .elements = 250'000,
                        .state_bytes = 64,
                        .model = "m",
                        .fingerprint = "f",
                        .gpu = gpu,
                        .gpu_free = 1'500'000});
  }
  AgentEffects say(MemberId id, proto::Body body) {
    return agent_.handle({id}, {0, std::move(body)});
  }
  // Joins, and gets a line that is created for it.
  AgentEffects enter(MemberId id) {
    const auto wanted = of<CreateDeviceLine>(join(id));
    EXPECT_EQ(wanted.size(), 1U);
    auto effects = agent_.on_device_line(wanted.at(0).line.line, 2 * kUnit);
    (void)say(id, proto::Ready{});
    return effects;
  }
  AgentEffects reap(MemberId id) { return agent_.on_reaped(id, 4711, 0, 9); }
  // World `g` of the members in these slots, which compute all leaves.
  void announce(proto::Generation g, const std::vector<std::pair<MemberId, proto::SlotIndex>>& in) {
    proto::World world{.incarnation = 1, .generation = g, .shards = 4};
    for (const auto& [id, slot] : in) world.members.push_back({.id = id, .slot_id = {0, slot}});
    world.plan.assign(4, {0, in.front().second});
    (void)agent_.handle({}, {1, proto::Announce{world}});
  }
  template <class T>
  static std::vector<T> of(const AgentEffects& effects) {
    std::vector<T> found;
    for (const AgentEffect& effect : effects) {
      if (const auto* one = std::get_if<T>(&effect)) found.push_back(*one);
    }
    return found;
  }
  // What member `id` is sent, of type T.
  template <class T>
  static std::vector<T> to(MemberId id, const AgentEffects& effects) {
    std::vector<T> found;
    for (const ToMember& sent : of<ToMember>(effects)) {
      if (const auto* body = std::get_if<T>(&sent.body); sent.member == id && body != nullptr)
        found.push_back(*body);
    }
    return found;
  }

  AgentCore agent_{{.slots = 4, .shards = 4, .seed = 99, .leaf_buffers = 2}};
};

TEST_F(DeviceLinesTest, AMemberWithMemoryOnAGpuWaitsForItsDeviceLine) {
  const auto joins = join(7);
  const auto wanted = of<CreateDeviceLine>(joins);
  ASSERT_EQ(wanted.size(), 1U);
  EXPECT_TRUE(of<ToMember>(joins).empty());
  const proto::DeviceLine& line = wanted[0].line;
  EXPECT_EQ(line.gpu, "GPU-a");
  EXPECT_EQ(line.leaf_bytes, 1'000'000U);
  EXPECT_EQ(line.leaf_buffers, 2U);
  EXPECT_EQ(line.slice_bytes, 1'000'000U);
  EXPECT_GE(line.bytes, 3'000'000U);
  const auto effects = agent_.on_device_line(line.line, 2 * kUnit);
  EXPECT_THAT(to<proto::Welcome>(7, effects), ElementsAre(proto::Welcome{0, 4, 99, 1, ""}));
  const auto lines = to<proto::DeviceLine>(7, effects);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].line, line.line);
  EXPECT_EQ(lines[0].slot, 0);
  EXPECT_EQ(lines[0].bytes, 2 * kUnit);
}

TEST_F(DeviceLinesTest, ANewcomerGetsTheLinesOfAllAndTheOthersGetIts) {
  (void)enter(0);
  const auto effects = enter(1);
  EXPECT_EQ(to<proto::Welcome>(1, effects).at(0).device_lines, 2U);
  const auto all = to<proto::DeviceLine>(1, effects);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].slot, 0);
  EXPECT_EQ(all[1].slot, 1);
  EXPECT_THAT(to<proto::DeviceLine>(0, effects), ElementsAre(all[1]));
}

TEST_F(DeviceLinesTest, AMemberWithoutAGpuGetsNone) {
  (void)enter(0);
  const auto effects = join(1, "");
  EXPECT_TRUE(of<CreateDeviceLine>(effects).empty());
  EXPECT_THAT(to<proto::Welcome>(1, effects), ElementsAre(proto::Welcome{1, 4, 99, 0, ""}));
  EXPECT_TRUE(to<proto::DeviceLine>(1, effects).empty());
}

TEST_F(DeviceLinesTest, WithoutTheOptionNoMemberGetsOne) {
  AgentCore agent({.slots = 4, .shards = 4, .seed = 99});
  (void)agent.handle({}, {1, proto::Start{.member = 0}});
  const auto effects = agent.handle({0}, {0, Join{.member = 0, .elements = 1, .gpu = "GPU-a"}});
  EXPECT_TRUE(of<CreateDeviceLine>(effects).empty());
  EXPECT_EQ(to<proto::Welcome>(0, effects).size(), 1U);
}

TEST_F(DeviceLinesTest, AGpuWithoutRoomEndsTheJoinWithTheNumbers) {
  const auto wanted = of<CreateDeviceLine>(join(3));
  const auto effects = agent_.on_no_device_line(wanted.at(0).line.line, "cuMemCreate", true, 1);
  const auto refused = to<proto::Refused>(3, effects);
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(refused[0].reason,
            "GPU 1: 2 leaf buffers of 1.0 MB and a slice of 1.0 MB wanted, 1.5 MB free; "
            "--device-memory 1 needs 2.0 MB");
  EXPECT_EQ(of<CloseMember>(effects).size(), 1U);
  const auto lost = of<ToCoordinator>(reap(3));
  EXPECT_EQ(std::get<proto::MemberLost>(lost.at(0).body).failure.message, refused[0].reason);
}

TEST_F(DeviceLinesTest, WithOneBufferThereIsNoSmallerNumberToTell) {
  const proto::Join join{.elements = 1000, .element_bytes = 8, .gpu = "GPU-a"};
  EXPECT_EQ(not_enough(line_for(join, 1), 0, 0),
            "GPU 0: 1 leaf buffer of 8.0 kB and a slice of 8.0 kB wanted, 0 bytes free");
}

TEST_F(DeviceLinesTest, WithoutADeviceLineAMemberJoinsWithTheReasonAndTheUserHearsItOnce) {
  const auto first = of<CreateDeviceLine>(join(0));
  const auto effects = agent_.on_no_device_line(first.at(0).line.line, "no libcuda.so.1");
  EXPECT_THAT(to<proto::Welcome>(0, effects),
              ElementsAre(proto::Welcome{0, 4, 99, 0, "no libcuda.so.1"}));
  const auto warned = of<Warn>(effects);
  ASSERT_EQ(warned.size(), 1U);
  EXPECT_THAT(warned[0].sentence, testing::HasSubstr("go through the host: no libcuda.so.1"));
  const auto second = of<CreateDeviceLine>(join(1));
  const auto again = agent_.on_no_device_line(second.at(0).line.line, "no libcuda.so.1");
  EXPECT_EQ(to<proto::Welcome>(1, again).size(), 1U);
  EXPECT_TRUE(of<Warn>(again).empty());
}

TEST_F(DeviceLinesTest, ADeviceLineGetsAnotherOwnerOnlyOnceItsOwnerIsReapedAndItsSumsAreNotNeeded) {
  const auto line = to<proto::DeviceLine>(0, enter(0)).at(0).line;
  (void)enter(1);
  announce(1, {{0, 0}, {1, 1}});
  (void)agent_.on_owner_died(0);
  EXPECT_EQ(of<CreateDeviceLine>(join(2)).size(), 1U) << "dead, and not reaped";
  (void)reap(0);
  EXPECT_EQ(of<CreateDeviceLine>(join(3)).size(), 1U) << "the plan has its leaves";
  (void)agent_.handle({}, {1, proto::Revoke{1}});
  announce(2, {{1, 1}});
  const auto effects = join(4);
  EXPECT_TRUE(of<CreateDeviceLine>(effects).empty());
  const auto welcome = to<proto::Welcome>(4, effects);
  ASSERT_EQ(welcome.size(), 1U);
  const auto told = to<proto::DeviceLine>(1, effects);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].line, line);
  EXPECT_EQ(told[0].slot, welcome[0].slot);
}

TEST_F(DeviceLinesTest, TheOthersHearThatASlotWithADeviceLineGoesToAMemberWithoutOne) {
  (void)enter(0);
  (void)enter(1);
  announce(1, {{1, 1}});
  (void)agent_.on_owner_died(0);
  (void)reap(0);
  const auto wanted = of<CreateDeviceLine>(join(2, "GPU-b"));
  ASSERT_EQ(wanted.size(), 1U);
  const auto effects = agent_.on_no_device_line(wanted[0].line.line, "no descriptors");
  EXPECT_EQ(to<proto::Welcome>(2, effects).at(0).slot, 0);
  const auto told = to<proto::DeviceLine>(1, effects);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].line, 0U);
  EXPECT_EQ(told[0].slot, 0);
  const auto next = of<CreateDeviceLine>(join(3, "GPU-b"));
  const auto elsewhere = agent_.on_no_device_line(next.at(0).line.line, "no descriptors");
  EXPECT_EQ(to<proto::Welcome>(3, elsewhere).at(0).slot, 2);
  EXPECT_TRUE(to<proto::DeviceLine>(1, elsewhere).empty()) << "the slot had no line";
}

TEST_F(DeviceLinesTest, AFreeDeviceLineOfAnotherSizeIsDroppedForANewOne) {
  DeviceLines lines;
  const Join small{.elements = 10, .gpu = "GPU-a"};
  const Join large{.elements = 20, .gpu = "GPU-a"};
  const auto always = [](MemberId) { return true; };
  const auto old = lines.add(0, line_for(small, 2)).line;
  EXPECT_FALSE(lines.reuse(1, line_for(small, 2), always)) << "not created yet";
  EXPECT_EQ(lines.created(old, kUnit), 0U);
  EXPECT_FALSE(lines.created(old, kUnit)) << "a second answer";
  EXPECT_FALSE(lines.reuse(1, line_for(large, 2), always));
  EXPECT_FALSE(lines.reuse(1, line_for({.elements = 10, .gpu = "GPU-b"}, 2), always));
  EXPECT_THAT(lines.drop_free(line_for({.gpu = "GPU-b"}, 2), always), ElementsAre());
  EXPECT_THAT(lines.drop_free(line_for(large, 2), always), ElementsAre(old));
  EXPECT_FALSE(lines.reuse(1, line_for(small, 2), always));
  EXPECT_NE(lines.add(1, line_for(small, 2)).line, old);
}

TEST_F(DeviceLinesTest, AMemberThatDiesBeforeItsDeviceLineIsThereLeavesItToTheNext) {
  const auto wanted = of<CreateDeviceLine>(join(0));
  (void)reap(0);
  const auto effects = agent_.on_device_line(wanted.at(0).line.line, 2 * kUnit);
  EXPECT_TRUE(of<ToMember>(effects).empty());
  EXPECT_EQ(to<proto::DeviceLine>(1, join(1)).at(0).line, wanted[0].line.line);
}

TEST_F(DeviceLinesTest, ASecondJoinBeforeTheDeviceLineIsThereIsRefused) {
  (void)join(0);
  const auto effects = say(0, Join{.member = 0, .elements = 250'000, .gpu = "GPU-a"});
  EXPECT_EQ(to<proto::Refused>(0, effects).at(0).reason, "member 0 has joined before");
}

// The first launch is over only when the last of its members is, with or without a slot.
TEST_F(DeviceLinesTest, AMemberThatWaitsForItsDeviceLineKeepsTheDeclaration) {
  (void)join(0);
  const auto other = say(1, proto::Ready{});
  EXPECT_TRUE(other.empty());
  (void)agent_.handle({}, {1, proto::Start{.member = 1}});
  const auto effects = say(1, Join{.member = 1, .elements = 1, .model = "other"});
  EXPECT_EQ(to<proto::Refused>(1, effects).size(), 1U);
}

}  // namespace
}  // namespace regroup::membership
