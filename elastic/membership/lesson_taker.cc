// Serves docs/design/learners.md.
#include "elastic/membership/lesson_taker.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace regroup::membership {

void LessonTaker::begin(core::LessonMark mark, const std::vector<Seated>& learners) {
  mark_ = mark;
  announced_ = false;
  kept_ = mark.step;
  learners_.clear();
  for (const Seated& seated : learners) learners_[seated.member].slot = seated.slot;
}

// Reads how far it is; why it cannot go on, or nothing.
std::string LessonTaker::look(const core::Arena& arena, Learner* learner) const {
  const auto at =
      core::LessonMark::unpack(arena.member_slot(learner->slot).learned.load(std::memory_order_acquire));
  if (at.lesson != mark_.lesson) return "";
  if (at.step == 0) return "what it got has another CRC32C than the donors gave it";
  learner->learned = at.step;
  return "";
}

std::vector<core::Learned> LessonTaker::poll(const core::Arena& arena, const There& there,
                                             const core::World& world) {
  std::vector<core::Learned> news;
  const bool announce = there.snapshot && !std::exchange(announced_, announced_ || there.snapshot);
  for (auto it = learners_.begin(); it != learners_.end();) {
    Learner& learner = it->second;
    core::MemberSlot& line = arena.member_slot(learner.slot);
    if (announce) line.lesson.store(mark_.pack(), std::memory_order_seq_cst);
    if (announce || there.kept != kept_) core::ring(line.bell);
    if (const std::string why = look(arena, &learner); !why.empty()) {
      line.lesson.store(0, std::memory_order_seq_cst);
      news.push_back({mark_.lesson, it->first, 0, why});
      it = learners_.erase(it);
      continue;
    }
    const bool caught_up =
        learner.learned > mark_.step && learner.learned >= there.kept && there.kept + 1 >= there.newest;
    if (!learner.told && caught_up) {
      learner.told = true;
      news.push_back({mark_.lesson, it->first, learner.learned, ""});
    }
    const bool proved = line.proved.load(std::memory_order_acquire) != 0;
    if (!learner.arrived && proved && world.rank_of(it->first) >= 0) {
      learner.arrived = true;
      news.push_back({mark_.lesson, it->first, learner.learned, ""});
    }
    ++it;
  }
  kept_ = there.kept;
  return news;
}

std::vector<core::Learned> LessonTaker::break_off(const core::Arena& arena, const std::string& why) {
  std::vector<core::Learned> news;
  for (const auto& [member, learner] : learners_) {
    if (!learner.arrived) news.push_back({mark_.lesson, member, 0, why});
  }
  end(arena);
  return news;
}

void LessonTaker::end(const core::Arena& arena) {
  for (const auto& [member, learner] : learners_) {
    core::MemberSlot& line = arena.member_slot(learner.slot);
    if (line.occupied.load(std::memory_order_acquire) != member + 1) continue;
    line.lesson.store(0, std::memory_order_seq_cst);
    core::ring(line.bell);
  }
  learners_.clear();
}

core::Step LessonTaker::may_have(core::MemberId member) const {
  const auto found = learners_.find(member);
  return found != learners_.end() && found->second.told ? kept_ : 0;
}

bool LessonTaker::read() const {
  return std::ranges::all_of(learners_, [](const auto& l) { return l.second.learned > 0; });
}

core::Step LessonTaker::consumed() const {
  core::Step least = std::numeric_limits<core::Step>::max();
  for (const auto& [member, learner] : learners_) {
    if (!learner.arrived) least = std::min(least, std::max(learner.learned, mark_.step));
  }
  return least;
}

}  // namespace regroup::membership
