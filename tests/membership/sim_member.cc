// The moves of a simulated member: as elastic/participant.cc and session.cc make them, but one at a
// time.
#include <fmt/format.h>

#include <algorithm>

#include "tests/membership/sim_job.h"

namespace regroup::membership {

using proto::Phase;
using proto::Position;
using proto::StateWord;
using shmem::RealPolicy;

bool SimJob::act(SimMember& m) {
  const proto::MemberId id = m.start.member;
  if (!m.alive || m.hangs || options.never_join.contains(id)) return false;
  if (!m.asked) {
    m.asked = true;
    const auto text = [&](const auto& map, const char* usual) {
      return map.contains(id) ? map.at(id) : std::string(usual);
    };
    from_member(id, proto::Join{.member = id,
                                .elements = 1,
                                .state_bytes = 64,
                                .model = text(options.models, "m"),
                                .fingerprint = text(options.fingerprints, "f")});
    return true;
  }
  if (!m.slot) return false;
  if (!m.ready) {
    m.ready = true;
    proto::Ready ready;
    if (const auto planes = options.planes.find(id); planes != options.planes.end())
      ready.planes = planes->second;
    if (const auto health = options.healths.find(id); health != options.healths.end())
      ready.health = health->second;
    from_member(id, ready);
    return true;
  }
  shmem::MemberSlot& member_slot = this->member_slot(id);
  if (member_slot.leave_request.load() == shmem::kNow) {
    exit(id, 0);
    return true;
  }
  if (member_slot.finished.load() != 0) {
    exit(id, 0);
    return true;
  }
  const bool outside = m.world.generation == 0;
  if (m.learning || (outside && (member_slot.using_snapshot.load() != 0 || transfer_offered(m)))) {
    return m.learning ? catch_up(m) : load_transfer(m);
  }
  const bool revoked = outside || member_slot.revoked_up_to.load() >= m.world.generation;
  if (revoked) return regroup(m);
  return m.settled ? work(m) : settle(m);
}

bool SimJob::regroup(SimMember& m) {
  shmem::MemberSlot& member_slot = this->member_slot(m.start.member);
  const shmem::Arena& arena = arena_of(m);
  const proto::Generation known = std::max(m.world.generation, m.seen);
  // A slot is given to a newcomer as if it had left every World there is: only ever raise
  // it.
  member_slot.left_generation.store(std::max(member_slot.left_generation.load(), known));
  const proto::Generation newest = arena.newest_world();
  if (newest <= known || member_slot.revoked_up_to.load() >= newest) return false;
  const auto world = arena.read_world(newest);
  if (!world.ok()) {
    violated(world.status().to_string());
    return false;
  }
  if (world->rank_of(proto::SlotId{m.node, *m.slot}) < 0) {
    m.seen = newest;
    return true;
  }
  return enter(m, *world);
}

bool SimJob::enter(SimMember& m, const proto::World& w) {
  shmem::MemberSlot& member_slot = this->member_slot(m.start.member);
  const auto& self = w.members[static_cast<std::size_t>(w.rank_of(m.start.member))];
  StateWord from = shmem::load_state<RealPolicy>(member_slot.state);
  if (from.phase == Phase::kNone || self.needs_state) {
    const proto::Generation g = from.phase == Phase::kNone ? w.generation - 1 : from.generation;
    member_slot.left_generation.store(w.generation - 1);
    from = {Phase::kCommitted, true, g, w.resume};
    member_slot.state.store(from.pack());
  }
  if (from.phase == Phase::kClosed && from.position <= w.resume) {
    if (shmem::accept_commit<RealPolicy>(member_slot.state, from)) committed(m, from.position);
    return true;
  }
  const proto::Step at =
      from.phase == Phase::kClosed ? from.position.before().step() : from.position.step();
  if (at != w.resume.step() && !(from.phase == Phase::kClosed && from.position.section() != 0)) {
    violated(fmt::format("member {} after step {} enters World {} that resumes after {}",
                         m.start.member, at, w.generation, w.resume.step()));
  }
  if (!shmem::join_generation<RealPolicy>(member_slot.state, member_slot.revoked_up_to, from,
                                          w.generation))
    return true;
  m.world = w;
  m.settled = false;
  member_slot.left_generation.store(w.generation - 1);
  return true;
}

bool SimJob::settle(SimMember& m) {
  shmem::MemberSlot& member_slot = this->member_slot(m.start.member);
  const proto::Generation g = m.world.generation;
  if (!meet(m)) return false;
  const auto& self = m.world.members[static_cast<std::size_t>(m.world.rank_of(m.start.member))];
  if (self.replays) return m.settled = true;
  if (!self.needs_state) {
    const auto newcomer = [](const proto::WorldMember& other) { return other.needs_state; };
    if (std::ranges::any_of(m.world.members, newcomer)) {
      if (old_readers(m)) return false;
      write_snapshot(m, 0);
    }
    if (m.applied != m.world.resume.step()) {
      violated(fmt::format("member {} has applied {} and is to give the state of {}",
                           m.start.member, m.applied, m.world.resume.step()));
    }
    member_slot.donated.store(g);
    m.settled = true;
    return true;
  }
  for (const proto::WorldMember& other : m.world.members) {
    if (!other.needs_state && !other.replays &&
        agent(other.slot_id.node).arena().member_slot(other.slot_id.slot).donated.load() != g)
      return false;
  }
  m.applied = m.world.resume.step();
  m.learning = m.torn = false;
  member_slot.proved.store(g);
  m.settled = true;
  return true;
}

// True if a state transfer, or a newcomer of an earlier generation, still reads.
bool SimJob::old_readers(const SimMember& m) {
  for (const auto& [id, other] : members) {
    if (!other.alive || other.node != m.node || !other.slot) continue;
    const proto::Generation adopting = member_slot(id).using_snapshot.load();
    if (adopting != 0 && adopting < m.world.generation) return true;
  }
  return false;
}

bool SimJob::meet(SimMember& m) {
  const auto elsewhere = [&](const proto::WorldMember& other) {
    return other.slot_id.node != m.node;
  };
  if (std::none_of(m.world.members.begin(), m.world.members.end(), elsewhere)) return true;
  const proto::Generation g = m.world.generation;
  if (m.addresses != g) {
    m.addresses = g;
    m.known = 0;
    from_member(m.start.member, proto::PeerAddresses{g, {{m.start.member, {}}}});
  }
  return m.known == m.world.size();
}

bool SimJob::work(SimMember& m) {
  shmem::MemberSlot& member_slot = this->member_slot(m.start.member);
  const StateWord word = shmem::load_state<RealPolicy>(member_slot.state);
  if (word.phase == Phase::kOpen) return compute_or_vote(m, word.position);
  if (word.phase != Phase::kCommitted) return false;  // closed: the next look sees the revoke
  if (m.drained) return false;
  if (donate(m)) return true;
  if (member_slot.leave_request.load() == shmem::kAtBoundary && m.applied < options.steps) {
    m.drained = true;
    from_member(m.start.member, proto::Drained{});
    return true;
  }
  if (m.applied == options.steps && word.position.section() == 1) {
    member_slot.finished.store(1);
    return true;
  }
  const Position next =
      m.applied < options.steps ? Position::of(m.applied + 1) : Position::of(options.steps, 1);
  if (next.section() == 0) {
    for (auto& seal : member_slot.seals) seal.store(0);
  }
  return shmem::open_transaction<RealPolicy>(member_slot.state, m.world.generation, word.position,
                                             next);
}

// One leaf, or the vote, or the commit.
bool SimJob::compute_or_vote(SimMember& m, Position at) {
  shmem::MemberSlot& member_slot = this->member_slot(m.start.member);
  const proto::Generation g = m.world.generation;
  auto& votes = votes_[{g, at.value}];
  // Once it has voted the seals are no more its business: a faster member may be in the next step.
  if (at.section() == 0 && !votes.contains(m.start.member)) {
    const auto owners = proto::owners_of(m.world, at.step());
    for (std::uint32_t leaf = 0; leaf < owners.size(); ++leaf) {
      auto& seal = member_slot.seals[leaf];
      if (owners[leaf] == proto::SlotId{m.node, *m.slot} && seal.load() == 0) {
        seal.store(proto::Seal{at.step(), {leaf, leaf + 1}}.pack());
        return true;
      }
    }
    if (!all_sealed(owners, at.step()) || !shmem::all_left_before(arena_of(m), g)) return false;
  }
  if (at.section() == 0 && votes.empty()) write_result(m.world, at.step());
  if (votes.insert(m.start.member).second) return true;
  if (votes.size() < m.world.size()) return false;
  if (shmem::commit_transaction<RealPolicy>(member_slot.state, g, at)) committed(m, at);
  return true;
}

bool SimJob::all_sealed(const std::vector<proto::SlotId>& owners, proto::Step step) {
  for (std::uint32_t leaf = 0; leaf < owners.size(); ++leaf) {
    const auto& seals = agent(owners[leaf].node).arena().member_slot(owners[leaf].slot).seals;
    if (!std::any_of(std::begin(seals), std::end(seals), [&](const auto& word) {
          const proto::Seal seal = proto::Seal::unpack(word.load());
          return seal.step == step && seal.leaves.contains(leaf);
        })) {
      return false;
    }
  }
  return true;
}

void SimJob::committed(SimMember& m, Position at) {
  if (at.section() != 0) return;
  if (at.step() != m.applied + 1) {
    violated(
        fmt::format("member {} applies step {} after {}", m.start.member, at.step(), m.applied));
  }
  m.applied = at.step();
  member_slot(m.start.member).step.store(m.applied);
}

}  // namespace regroup::membership
