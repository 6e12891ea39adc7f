// The content of the next World.
#include "membership/coordinator/next_world.h"

#include <algorithm>

#include "membership/membership.h"
#include "membership/plan.h"

namespace regroup::membership {
namespace {

// How a member of the next World gets the state of `resume`, from what it had in the World before.
void set_state_need(proto::WorldMember* m, const MemberInfo& r, proto::Position resume) {
  if (r.rank < 0) {
    m->replays = has_caught_up(r.catch_up);
    m->needs_state = !m->replays;
    m->from_step = resume.step() + 1;  // it has not taken part yet
    return;
  }
  const proto::WorldMember& was = r.entry;
  const bool lacks = (was.needs_state || was.replays) && !r.proved;
  m->replays = lacks && was.replays && has_caught_up(r.catch_up);
  m->needs_state = lacks && !m->replays;
  m->from_step = lacks && was.from_step > 0 ? resume.step() + 1 : was.from_step;
}

// Sets for each member whether it has the state of `world.resume`, replays to it or copies it.
// False: no member has it.
bool assign_donors(const WorldRequest& request, bool first, const MemberTable& members,
                   proto::World* world) {
  const proto::Step resume = world->resume.step();
  bool donor = false;
  proto::WorldMember* holder = nullptr;
  for (proto::WorldMember& m : world->members) {
    if (first)
      m.needs_state = &m != world->members.data();
    else
      set_state_need(&m, *members.find(m.id), world->resume);
    if (m.needs_state || m.replays) continue;
    donor |= m.from_step <= resume;
    if (holder == nullptr) holder = &m;
  }
  if (donor) return true;
  // Before the first step every member has the initial state, or reads it from the checkpoint.
  // Later a joining member that has proved its copy can be the donor.
  if (holder == nullptr && resume == request.checkpoint && !world->members.empty())
    holder = world->members.data();
  if (holder == nullptr) return false;
  holder->needs_state = false;
  holder->from_step = resume;  // a donor counts as one that has taken part in `resume`
  return true;
}

}  // namespace

std::variant<proto::World, StateIsLost> next_world(const WorldRequest& request,
                                                   const proto::World& before,
                                                   const MemberTable& members,
                                                   const ReportRound::Reports& reports) {
  const bool first = before.generation == 0;
  proto::World w{.incarnation = request.incarnation,
                 .generation = request.generation,
                 .shards = request.shards,
                 .why = request.why,
                 .plane = request.plane,
                 .plane_why = request.plane_why};
  w.resume = std::max(resume_of(before, reports), proto::Position::of(request.checkpoint));
  for (const proto::MemberId id : request.members) {
    const MemberInfo& r = *members.find(id);
    w.members.push_back({.id = id, .slot_id = r.slot_id});
    // A step that a learner has applied was committed with the votes of all.
    if (has_caught_up(r.catch_up))
      w.resume = std::max(w.resume, proto::Position::of(r.caught_up_to));
  }
  if (!assign_donors(request, first, members, &w)) return StateIsLost{w.resume.step()};
  const proto::Step open = w.resume.step() + 1;
  const auto owners = first ? std::vector<proto::SlotId>{} : proto::owners_of(before, open);
  w.plan = plan_leaves(open, w.shards, owners, w.members, reports);
  return w;
}

}  // namespace regroup::membership
