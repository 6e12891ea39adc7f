// Serves docs/design/learners.md.
#include "elastic/membership/lessons.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace regroup::membership {
namespace {

constexpr core::Duration kPause = std::chrono::milliseconds(200);  // between a lesson and the next
constexpr core::LessonId kOfIncarnation = 4096;
constexpr std::size_t kMostSources = 4;
constexpr std::uint32_t kMostLessons = 3;  // that fail: then a member gets a copy inside the regroup

// In a job on one host, that has no name.
std::string at_host(const std::string& host, const std::string& why) {
  return host.empty() ? why : fmt::format("host {}: {}", host, why);
}

std::string lost(const std::string& host) { return fmt::format("host {}, which gives it, is lost", host); }

// Why a node can give no more, whose host may be in no table any more; empty: it can. `writing`: in the World
// whose members write, which all have the state when they do.
std::string lack_of(const Lessons::Scene& scene, core::NodeId node, const std::string& host, bool writing) {
  if (!scene.nodes.contains(node)) return lost(host);
  const bool gives = std::ranges::any_of(scene.members.on_node(node), [&](core::MemberId id) {
    const Record& r = *scene.members.look(id);
    return r.lives_in_world() && (writing || r.has_state());
  });
  return gives ? "" : at_host(host, "no member that gave it has the state any more");
}

}  // namespace

Lessons::Lessons(core::Incarnation incarnation) : last_(incarnation % kOfIncarnation * kOfIncarnation) {}

// Never 0; each incarnation has numbers of its own, over and over.
core::LessonId Lessons::next_id() {
  const core::LessonId first = last_ / kOfIncarnation * kOfIncarnation;
  last_ = first + std::max<core::LessonId>((last_ + 1) % kOfIncarnation, 1);
  return last_;
}

Lessons::Round Lessons::attend(Scene scene) {
  if (scene.steady && scene.members.any_lacks_results()) {
    for (auto& [id, r] : scene.members.each()) {
      if (!r.lacks_results() || (lesson_ && lesson_->learners.contains(id))) continue;
      r.caught_up = false;
      return fmt::format("member {} gets a copy: nobody gives it the results that it lacks", id);
    }
  }
  if (!lesson_) {
    begin(scene);
    return {};
  }
  std::erase_if(lesson_->learners, [&](const auto& learner) {
    const Record& r = *scene.members.look(learner.first);
    return r.proved || (r.state >= MemberState::kDraining && !r.lacks_results());
  });
  if (lesson_->learners.empty()) return end(scene, "");
  for (const auto& [node, source] : lesson_->sources) {
    const bool writing = lesson_->generation == scene.world.generation;
    if (const std::string why = lack_of(scene, node, source.name, writing); !why.empty())
      return end(scene, why);
  }
  for (const auto& [node, host] : lesson_->asked) {
    if (!scene.nodes.contains(node)) return end(scene, lost(host));
  }
  if (std::ranges::all_of(lesson_->learners, [](const auto& learner) { return learner.second; })) {
    for (const auto& [id, caught_up] : lesson_->learners) {
      Record& r = *scene.members.find(id);
      if (std::exchange(r.learning, false))
        scene.remember(fmt::format("member {} has caught up with step {}", id, r.learned));
    }
  }
  return {};
}

// The node with the most members, those first that need not come to their state in this World, says after
// which step.
void Lessons::begin(const Scene& scene) {
  if (!scene.steady || scene.now < next_ || scene.members.any_finished() || scene.members.learning() == 0)
    return;
  const std::vector<core::MemberId> learning = learners(scene.members.roster(scene.world, {}), scene.policy);
  if (learning.empty()) return;
  std::map<core::NodeId, std::pair<int, int>> members;  // with the state, and all
  for (const core::WorldMember& m : scene.world.members) {
    const Record& r = *scene.members.look(m.id);
    if (!r.lives_in_world()) return;  // no step is committed in this World any more
    if (!scene.nodes.contains(m.seat.node)) continue;
    auto& [with_state, all] = members[m.seat.node];
    with_state += r.has_state() ? 1 : 0;
    ++all;
  }
  const auto most = std::ranges::max_element(members, {}, [](const auto& m) { return m.second; });
  if (most == members.end()) return;
  lesson_ = Lesson();
  lesson_->id = next_id();
  lesson_->generation = scene.world.generation;
  for (const core::MemberId id : learning) lesson_->learners[id] = false;
  scene.remember(fmt::format("lesson {} for member{} {}", lesson_->id, learning.size() == 1 ? "" : "s",
                             fmt::join(learning, ", ")));
  ask(scene, most->first);
}

void Lessons::ask(const Scene& scene, core::NodeId node) {
  lesson_->asked[node] = scene.nodes.all().at(node).name;
  scene.effects.emplace_back(ToAgent{node, core::Teach{lesson_->id, lesson_->step}});
}

Lessons::Round Lessons::on_taught(const Scene& scene, core::NodeId node, const core::Taught& taught) {
  if (!lesson_ || taught.lesson != lesson_->id) return {};
  const bool first = lesson_->step == 0;
  const auto answered = lesson_->asked.extract(node);
  const bool asked = !answered.empty();
  if (!asked && !lesson_->sources.contains(node)) return {};
  const bool reached = !taught.endpoints.empty() || scene.nodes.all().size() == 1;
  const bool same = first ? taught.step > 0 : taught.step == lesson_->step;
  if (!taught.why.empty() || !reached || (asked && !same)) {
    const std::string why = !taught.why.empty() ? taught.why
                            : !reached          ? "other hosts cannot reach it"
                                                : "it gives another step";
    if (first || !asked)  // the others do without this one
      return end(scene, at_host(scene.nodes.all().at(node).name, why));
  } else if (asked) {
    lesson_->sources[node] = {node, taught.endpoints, answered.mapped()};
    lesson_->step = taught.step;
  }
  if (first) ask_others(scene);
  if (lesson_->asked.empty() && !lesson_->begun) tell_learners(scene);
  return {};
}

void Lessons::ask_others(const Scene& scene) {
  for (const core::WorldMember& m : scene.world.members) {
    const core::NodeId node = m.seat.node;
    if (lesson_->sources.contains(node)) continue;
    if (lesson_->asked.contains(node) || !scene.nodes.contains(node)) continue;
    if (lesson_->asked.size() + 1 < kMostSources) ask(scene, node);
  }
}

void Lessons::tell_learners(Scene scene) {
  lesson_->begun = true;
  std::map<core::NodeId, core::Learn> orders;
  for (const auto& [id, caught_up] : lesson_->learners)
    orders[scene.members.find(id)->seat.node].members.push_back(id);
  for (auto& [node, order] : orders) {
    order.lesson = lesson_->id;
    order.step = lesson_->step;
    for (const auto& [at, source] : lesson_->sources) order.sources.push_back(source);
    scene.effects.emplace_back(ToAgent{node, std::move(order)});
  }
}

Lessons::Round Lessons::on_learned(Scene scene, const core::Learned& learned) {
  if (!lesson_ || learned.lesson != lesson_->id || !lesson_->learners.contains(learned.member)) return {};
  Record& r = *scene.members.find(learned.member);
  const bool in_world = r.lacks_results();
  if (learned.why.empty()) {
    lesson_->learners[r.id] = r.caught_up = true;
    r.learned = std::max(r.learned, learned.step);
    r.proved |= in_world;  // who comes in with it has said that it caught up before
    return {};
  }
  lesson_->learners.erase(r.id);
  r.caught_up = false;
  if (++r.lessons >= kMostLessons) r.learning = false;
  scene.remember(fmt::format("lesson {}: member {} cannot go on: {}", learned.lesson, r.id, learned.why));
  if (!in_world) return {};
  return fmt::format("member {} gets a copy: {}", r.id, learned.why);
}

// Those that have not come in have another lesson, or a copy.
Lessons::Round Lessons::end(Scene scene, const std::string& why) {
  const Lesson lesson = std::move(*lesson_);
  lesson_.reset();
  next_ = scene.now + kPause;
  std::set<core::NodeId> nodes;
  for (const auto& [node, host] : lesson.asked) nodes.insert(node);
  for (const auto& [node, source] : lesson.sources) nodes.insert(node);
  bool stuck = false;
  for (const auto& [id, caught_up] : lesson.learners) {
    Record& r = *scene.members.find(id);
    nodes.insert(r.seat.node);
    r.caught_up = false;
    if (!r.in_world()) r.learning = ++r.lessons < kMostLessons;
    stuck |= r.lacks_results();
  }
  for (const core::NodeId node : nodes) {
    if (scene.nodes.contains(node)) scene.effects.emplace_back(ToAgent{node, core::EndLesson{lesson.id}});
  }
  if (!why.empty()) scene.remember(fmt::format("lesson {} is over: {}", lesson.id, why));
  if (!stuck) return {};
  return fmt::format("a learner gets a copy: {}", why);
}

}  // namespace regroup::membership
