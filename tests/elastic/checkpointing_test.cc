// Saves for checkpoints: which member copies which part of a state into the save area, and when
// the agent is rung.
#include "elastic/checkpointing.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "regroup/optimizer.h"
#include "shmem/save_mark.h"
#include "tests/elastic/members.h"

namespace regroup::elastic {
namespace {

using collective::testing::eventually;
using proto::SlotIndex;
using shmem::SaveMark;
using testing::Agent;
using testing::await;
using testing::Bytes;
using testing::follow;
using testing::pattern;
using testing::start;
using Phase = shmem::SaveMark::Phase;

constexpr std::size_t kRoom = 1 << 20;
const Checkpointing kEach{1, "", "a model", "a fingerprint"};

SaveMark mark_of(Agent& agent) { return SaveMark::unpack(agent.arena().save_word().load()); }

nlohmann::json description_of(Agent& agent) {
  const auto area = agent.arena().save_area();
  const shmem::SaveHeader& header = shmem::save_header(area);
  return nlohmann::json::parse(
      std::string(reinterpret_cast<const char*>(area.data()) + header.offset, header.bytes));
}

// Returns the bytes of the tensor that the agent would write.
std::vector<std::byte> saved(Agent& agent, const nlohmann::json& tensor) {
  const auto bytes = tensor["shape"][0].get<std::size_t>();
  const std::byte* from = agent.arena().at(tensor["offset"].get<std::uint64_t>());
  return {from, from + bytes};
}

// Members whose states differ, as they never do in a job: so it shows whose bytes are where.
struct Members {
  Members(SlotIndex count, std::size_t bytes) : agent(count, bytes, bytes + kRoom) {
    for (SlotIndex slot = 0; slot < count; ++slot) {
      states.emplace_back(pattern(bytes, slot + 1));
      all.insert(slot);
    }
  }
  void start_all(const std::function<void(Participant&, State&)>& body) {
    for (const SlotIndex slot : all)
      threads.push_back(start(
          agent, slot, [&state = states[slot], body](Participant& self) { body(self, state); }));
    agent.welcome_all();
    agent.announce(1, all, {});
  }

  Agent agent;
  std::vector<Bytes> states;
  std::set<SlotIndex> all;
  std::vector<std::jthread> threads;
};

TEST(Checkpointing, EachMemberOfANodeCopiesItsShare) {
  for (const SlotIndex count : {1, 2, 3, 5}) {
    constexpr std::size_t kBytes = 600'000;
    Members members(count, kBytes);
    std::atomic<int> wanted = 0;
    members.start_all([&](Participant& self, State& state) {
      request_save(self, 6, kEach);  // of rank 0 only; before anybody can commit the step
      ++wanted;
      EXPECT_TRUE(eventually([&] { return wanted == static_cast<int>(members.all.size()); }));
      EXPECT_TRUE(save_share(self, state, 7, kEach).ok());
    });
    members.threads.clear();
    EXPECT_EQ(mark_of(members.agent), (SaveMark{Phase::kReady, 7}));
    EXPECT_EQ(shmem::save_header(members.agent.arena().save_area()).bell.count.load(), 1U);
    const auto description = description_of(members.agent);
    EXPECT_EQ(description["step"], 7);
    EXPECT_EQ(description["model"], "a model");
    EXPECT_EQ(description["fingerprint"], "a fingerprint");
    ASSERT_EQ(description["tensors"].size(), 3U);
    std::vector<std::byte> bytes = saved(members.agent, description["tensors"][0]);
    const auto more = saved(members.agent, description["tensors"][1]);
    bytes.insert(bytes.end(), more.begin(), more.end());
    ASSERT_EQ(bytes.size(), kBytes);
    EXPECT_TRUE(std::ranges::is_sorted(bytes));  // share after share
    for (const SlotIndex slot : members.all) {
      const auto share = std::ranges::count(bytes, static_cast<std::byte>(slot + 1));
      EXPECT_NEAR(static_cast<double>(share), static_cast<double>(kBytes) / count, 8192.0);
    }
  }
}

// The kernel maps each page of the arena at the join: no save, the first one either, waits for
// that.
TEST(Checkpointing, TheFirstSnapshotTouchesNoNewPage) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the sanitizer keeps pages of its own for each of ours";
#endif
  constexpr std::size_t kBytes = 64 << 20;
  Members members(1, kBytes);
  std::vector<long> faults;
  members.start_all([&](Participant& self, State& state) {
    const auto faults_of = [&](proto::Step step) {
      request_save(self, step - 1, kEach);
      rusage before{}, after{};
      ::getrusage(RUSAGE_THREAD, &before);
      EXPECT_TRUE(save_share(self, state, step, kEach).ok());
      ::getrusage(RUSAGE_THREAD, &after);
      EXPECT_EQ(mark_of(members.agent), (SaveMark{Phase::kReady, step}));
      members.agent.arena().save_word().store(SaveMark{Phase::kIdle, step}.pack());
      return after.ru_minflt - before.ru_minflt;
    };
    faults = {faults_of(7), faults_of(8)};
  });
  members.threads.clear();
  ASSERT_EQ(faults.size(), 2U);
  EXPECT_LT(faults[0], static_cast<long>(kBytes / 4096 / 2)) << "the second one had " << faults[1];
}

// A save of members that differ is never complete.
TEST(Checkpointing, ASnapshotThatIsComparedWaitsForRankZeroToConfirmIt) {
  Checkpointing compared = kEach;
  compared.compared = true;
  Members members(2, 50'000);
  std::atomic<int> wanted = 0, shared = 0;
  members.start_all([&](Participant& self, State& state) {
    request_save(self, 6, compared);
    ++wanted;
    EXPECT_TRUE(eventually([&] { return wanted == 2; }));
    EXPECT_TRUE(save_wanted(self, 7, compared));
    EXPECT_FALSE(save_wanted(self, 8, compared));
    EXPECT_TRUE(save_share(self, state, 7, compared).ok());
    ++shared;
    EXPECT_TRUE(eventually([&] { return shared == 2; }));
    if (self.rank() != 0) return confirm_save(self, 7, compared);
    EXPECT_EQ(mark_of(members.agent), (SaveMark{Phase::kWanted, 7}));
    confirm_save(self, 8, compared);  // of another step
    EXPECT_EQ(mark_of(members.agent), (SaveMark{Phase::kWanted, 7}));
    confirm_save(self, 7, compared);
    EXPECT_EQ(mark_of(members.agent), (SaveMark{Phase::kReady, 7}));
    confirm_save(self, 7, compared);  // once more changes nothing
  });
  members.threads.clear();
  EXPECT_EQ(mark_of(members.agent), (SaveMark{Phase::kReady, 7}));
  EXPECT_EQ(shmem::save_header(members.agent.arena().save_area()).bell.count.load(), 1U);
}

TEST(Checkpointing, AMissingShareVoidsTheSnapshotAndTheNextWorldTakesAnother) {
  Members members(3, 50'000);
  std::atomic<int> wanted = 0;
  members.start_all([&](Participant& self, State& state) {
    const bool dies = self.slot_id().slot == 1;
    request_save(self, 1, kEach);
    ++wanted;
    EXPECT_TRUE(eventually([&] { return wanted >= 3; }));
    if (dies) return;  // after the commit, before its share
    EXPECT_TRUE(save_share(self, state, 2, kEach).ok());
    follow(self, 2);
    EXPECT_TRUE(save_share(self, state, 2, kEach).ok());  // of what another generation wanted: none
    request_save(self, 2, kEach);
    ++wanted;
    EXPECT_TRUE(eventually([&] { return wanted >= 5; }));
    EXPECT_TRUE(save_share(self, state, 3, kEach).ok());
  });
  await(members.agent, [&] {
    const auto& progress = shmem::save_header(members.agent.arena().save_area()).progress;
    return wanted == 3 && shmem::SaveProgress::unpack(progress.load()).missing == 1;
  });
  EXPECT_EQ(mark_of(members.agent), (SaveMark{Phase::kWanted, 2}));
  for (const SlotIndex slot : {0, 2}) members.agent.member_slot(slot).revoked_up_to.store(1);
  members.agent.member_slot(1).dead.store(1);
  members.agent.announce(2, {0, 2}, {});
  members.threads.clear();
  EXPECT_EQ(mark_of(members.agent), (SaveMark{Phase::kReady, 3}));
  EXPECT_EQ(description_of(members.agent)["step"], 3);
}

TEST(Checkpointing, RequestsNothingWhileTheDiskIsBusy) {
  Members members(1, 4096);
  auto& word = members.agent.arena().save_word();
  word.store(SaveMark{Phase::kTaken, 3}.pack());
  members.start_all([&](Participant& self, State& state) {
    request_save(self, 8, kEach);
    EXPECT_TRUE(save_share(self, state, 9, kEach).ok());
    EXPECT_EQ(mark_of(members.agent), (SaveMark{Phase::kTaken, 3}));
    word.store(SaveMark{Phase::kIdle, 3}.pack());
    const Checkpointing tenth{10, "", "", ""};
    request_save(self, 8, tenth);
    EXPECT_EQ(mark_of(members.agent), (SaveMark{Phase::kIdle, 3}));  // 9 is not due
    request_save(self, 9, tenth);
    EXPECT_EQ(mark_of(members.agent), (SaveMark{Phase::kWanted, 10}));
  });
}

TEST(Checkpointing, TheLastStepIsSavedWhateverTheInterval) {
  Members members(1, 4096);
  const Checkpointing tenth{10, "", "a model", "a fingerprint"};
  members.start_all([&](Participant& self, State&) {
    request_save(self, 6, tenth, /*next_is_last=*/false);
    EXPECT_EQ(mark_of(members.agent), (SaveMark{Phase::kIdle, 0}));
    request_save(self, 6, tenth, /*next_is_last=*/true);
    EXPECT_EQ(mark_of(members.agent), (SaveMark{Phase::kWanted, 7}));
  });
}

// A model of a tensor of many pages, a short one and text, as all members have it.
struct Model {
  explicit Model(std::size_t elements) : weight(elements, 1), momentum(elements, 2) {
    state.track("text", std::span(text));
    state.track("weight", std::span(weight));
    state.track("bias", std::span(bias));
    state.track("momentum", std::span(momentum));
  }
  // The next step of training, which brings into `plan` what it computes.
  void step(SavePlan* plan) {
    const std::vector<float> gradient(weight.size(), 0.25F);
    const Stepped first = stepped(plan, "weight", weight),
                  second = stepped(plan, "momentum", momentum);
    EXPECT_TRUE(sgd_step(first, gradient, second, false, {.lr = 0.5, .momentum = 0.5}).ok());
    const Stepped third = stepped(plan, "bias", bias);
    EXPECT_TRUE(
        sgd_step(third, std::span(gradient).first(bias.size()), {}, false, {.lr = 0.5}).ok());
    text = {std::byte{'8'}};
  }
  static Stepped stepped(SavePlan* plan, const std::string& name, std::vector<float>& values) {
    for (SavePlan::Part& part : plan->parts) {
      if (part.target.name != name) continue;
      part.saved = true;
      auto* memory = reinterpret_cast<float*>(part.target.memory.data());
      return {values,
              {memory, part.target.memory.size() / sizeof(float)},
              part.target.begin / sizeof(float)};
    }
    return {values, {}};
  }

  std::vector<std::byte> text{std::byte{'7'}};
  std::vector<float> weight, bias = {1, 2, 3}, momentum;
  TrackedState state;
};

// Members with a model each go through the step whose state is saved; then `after` changes it, say.
struct Stepping {
  Stepping(SlotIndex count, std::size_t elements, const std::function<void(Model&)>& after)
      : agent(count, 4 << 20, 4 << 20), plans(count) {
    std::set<SlotIndex> all;
    for (SlotIndex slot = 0; slot < count; ++slot) all.insert(slot), models.emplace_back(elements);
    std::atomic<int> wanted = 0;
    std::vector<std::jthread> threads;
    for (const SlotIndex slot : all) {
      threads.push_back(start(agent, slot, [&, slot](Participant& self) {
        Model& model = models[slot];
        request_save(self, 6, kEach);
        ++wanted;
        EXPECT_TRUE(eventually([&] { return wanted == static_cast<int>(all.size()); }));
        EXPECT_TRUE(plan_save(self, model.state, 7, kEach, &plans[slot]).ok());
        model.step(&plans[slot]);
        after(model);
        EXPECT_TRUE(save_share(self, model.state, 7, kEach, &plans[slot]).ok());
      }));
    }
    agent.welcome_all();
    agent.announce(1, all, {});
    threads.clear();
    EXPECT_EQ(mark_of(agent), (SaveMark{Phase::kReady, 7}));
  }
  template <class T>
  void expect_saved(const std::string& name, const std::vector<T>& wanted) {
    const auto description = description_of(agent);
    for (const auto& tensor : description["tensors"]) {
      if (tensor["name"] != name) continue;
      const auto* got =
          reinterpret_cast<const T*>(agent.arena().at(tensor["offset"].get<std::uint64_t>()));
      ASSERT_EQ(tensor["shape"][0], wanted.size());
      EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), got)) << name;
      return;
    }
    ADD_FAILURE() << "no tensor " << name;
  }
  void expect_all_saved() {
    const Model& model = models.front();
    expect_saved("text", model.text);
    expect_saved("weight", model.weight);
    expect_saved("bias", model.bias);
    expect_saved("momentum", model.momentum);
  }
  SaveCounts counts() {
    SaveCounts sum;
    for (const SavePlan& plan : plans) {
      sum.copied += plan.counts.copied;
      sum.fused += plan.counts.fused;
    }
    return sum;
  }

  Agent agent;
  std::deque<Model> models;
  std::vector<SavePlan> plans;
};

TEST(Checkpointing, TensorsThatTheStepWroteAreNotCopied) {
  constexpr std::uint64_t kLengths = 4 * sizeof(std::int64_t);
  for (const SlotIndex count : {1, 2, 3, 5}) {
    Stepping job(count, 100'000, [](Model&) {});
    job.expect_all_saved();
    EXPECT_EQ(job.counts().fused, (100'000 * 2 + 3) * sizeof(float)) << count;
    EXPECT_EQ(job.counts().copied, 1 + kLengths) << count;
  }
}

TEST(Checkpointing, TensorsChangedAfterTheStepAreCopied) {
  for (const SlotIndex count : {1, 3}) {
    Stepping job(count, 100'000, [](Model& model) {
      for (float& value : model.weight) value = std::min(value, 0.25F);
      model.bias[1] = 9;
    });
    job.expect_all_saved();
    EXPECT_EQ(job.counts().fused, 100'000 * sizeof(float));
  }
}

TEST(Checkpointing, TextThatGrowsMovesNothing) {
  Stepping job(3, 50'000, [](Model& model) {
    model.text.assign(100'000, std::byte{'9'});
    model.state = TrackedState();
    model.state.track("text", std::span(model.text));
    model.state.track("weight", std::span(model.weight));
    model.state.track("bias", std::span(model.bias));
    model.state.track("momentum", std::span(model.momentum));
  });
  job.expect_all_saved();
  EXPECT_GT(job.counts().fused, 80'000 * sizeof(float));  // the edges of shares move
}

TEST(Checkpointing, AStepThatMovesTensorsCostsTheSnapshotOnly) {
  Stepping job(2, 50'000, [](Model& model) {
    model.state = TrackedState();
    model.state.track("new", std::span(model.momentum));
    model.state.track("weight", std::span(model.weight));
  });
  EXPECT_EQ(
      description_of(job.agent)["error"],
      "checkpoint: the layout of the state changed in the step that wrote it into the save area");
  EXPECT_EQ(job.counts().copied, 0U);
}

TEST(Checkpointing, AStateThatOutgrowsItsAreaCostsTheSnapshotOnly) {
  Members members(2, 1 << 20);
  members.states = {Bytes(pattern(4 << 20, 1)), Bytes(pattern(4 << 20, 2))};
  std::atomic<int> wanted = 0;
  members.start_all([&](Participant& self, State& state) {
    request_save(self, 1, kEach);
    ++wanted;
    EXPECT_TRUE(eventually([&] { return wanted == 2; }));
    EXPECT_TRUE(save_share(self, state, 2, kEach).ok());
  });
  members.threads.clear();
  EXPECT_EQ(mark_of(members.agent), (SaveMark{Phase::kReady, 2}));
  EXPECT_EQ(description_of(members.agent)["error"], "checkpoint: the state outgrew the save area");
}

}  // namespace
}  // namespace regroup::elastic
