// State transfers of a simulated job: what members write for them, what a learner does
// (elastic/session_join.cc), and how a fetch carries them between nodes
// (membership/catchup/transfer_service.cc), one small move at a time. The state is the number of
// the last step applied, over and over; so is a result, once.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/crc32c.h"
#include "proto/transfer_step.h"
#include "tests/membership/sim_job.h"

namespace regroup::membership {

using proto::Step;
using proto::TransferStep;

namespace {

constexpr Step kMixed = ~Step{0};

Step read(std::span<const std::byte> bytes) {
  Step step = 0;
  const std::size_t size = std::min(bytes.size(), sizeof step);
  std::memcpy(&step, bytes.data(), size);
  for (; bytes.size() >= 2 * size; bytes = bytes.subspan(size)) {
    if (!std::ranges::equal(bytes.first(size), bytes.subspan(size, size))) return kMixed;
  }
  return step;
}

void write(std::span<std::byte> bytes, Step step) {
  const std::size_t size = std::min(bytes.size(), sizeof step);
  for (; bytes.size() >= size; bytes = bytes.subspan(size)) std::memcpy(bytes.data(), &step, size);
}

}  // namespace

void SimJob::write_snapshot(const SimMember& m, std::uint32_t salt) {
  const shmem::Arena& arena = arena_of(m);
  write(arena.snapshot(), m.applied);
  arena.snapshot_used().store(arena.snapshot().size());
  arena.snapshot_crcs()[0].store(base::crc32c(arena.snapshot(), salt));
}

void SimJob::write_result(const proto::World& world, Step step) {
  for (const proto::WorldMember& m : world.members)
    write(agent(m.slot_id.node).arena().result(step), step);
}

// As it passes the step of a state transfer.
bool SimJob::donate(SimMember& m) {
  shmem::MemberSlot& member_slot = this->member_slot(m.start.member);
  const auto mark = TransferStep::unpack(arena_of(m).snapshot_at().load());
  if (mark.transfer == 0 || mark.step != m.applied ||
      member_slot.donated_step.load() == mark.pack())
    return false;
  if (m.applied <= m.world.resume.step()) return false;
  write_snapshot(m, proto::snapshot_salt(mark.transfer));
  member_slot.donated_step.store(mark.pack());
  return true;
}

bool SimJob::transfer_offered(const SimMember& m) {
  const std::uint64_t transfer = member_slot(m.start.member).transfer.load();
  return transfer != 0 && transfer != m.transfer;
}

// In two moves: between them anything may happen to the snapshot.
bool SimJob::load_transfer(SimMember& m) {
  shmem::MemberSlot& member_slot = this->member_slot(m.start.member);
  const shmem::Arena& arena = arena_of(m);
  if (member_slot.using_snapshot.load() == 0) {
    member_slot.using_snapshot.store(std::max(arena.newest_world(), 1U));
    m.transfer = member_slot.transfer.load();
    m.torn = true;
    return true;
  }
  const auto mark = TransferStep::unpack(m.transfer);
  const bool stale = m.transfer == 0 || member_slot.transfer.load() != m.transfer;
  const bool sound = base::crc32c(arena.snapshot(), proto::snapshot_salt(mark.transfer)) ==
                     arena.snapshot_crcs()[0].load();
  member_slot.using_snapshot.store(0);
  if (stale) return true;
  member_slot.replayed.store(TransferStep{mark.transfer, sound ? mark.step : 0}.pack());
  if (!sound) return true;
  if (read(arena.snapshot()) != mark.step) violated("a snapshot of another step passed");
  m.applied = mark.step;
  m.learning = true;
  m.torn = false;
  ++transfers_read;
  return true;
}

bool SimJob::replay(SimMember& m) {
  shmem::MemberSlot& member_slot = this->member_slot(m.start.member);
  const shmem::Arena& arena = arena_of(m);
  const Step next = m.applied + 1;
  if (m.torn || arena.kept_step(next).load() != next) return false;
  const auto mark = TransferStep::unpack(m.transfer);
  if (base::crc32c(arena.kept_result(next), proto::result_salt(next)) != arena.kept_crcs(next)[0]) {
    member_slot.replayed.store(TransferStep{mark.transfer, 0}.pack());
    m.torn = true;
    return true;
  }
  if (read(arena.kept_result(next)) != next) violated("a result of another step passed");
  m.applied = next;
  member_slot.step.store(next);
  member_slot.replayed.store(TransferStep{mark.transfer, next}.pack());
  ++results_replayed;
  return true;
}

bool SimJob::catch_up(SimMember& m) {
  shmem::MemberSlot& member_slot = this->member_slot(m.start.member);
  const bool in_world = m.world.generation > 0;
  if (m.drained)
    return in_world && member_slot.revoked_up_to.load() >= m.world.generation && regroup(m);
  if (member_slot.leave_request.load() == shmem::kAtBoundary) {
    m.drained = true;
    from_member(m.start.member, proto::Drained{});
    return true;
  }
  if (member_slot.using_snapshot.load() != 0) return load_transfer(m);
  if (in_world && member_slot.revoked_up_to.load() < m.world.generation && !m.settled)
    return settle(m);
  if (in_world && m.settled && !m.torn && m.applied >= m.world.resume.step()) {
    m.learning = false;
    member_slot.proved.store(m.world.generation);
    return true;
  }
  const bool outside = !in_world || member_slot.revoked_up_to.load() >= m.world.generation;
  if (outside && regroup(m)) return true;
  if (replay(m)) return true;
  return transfer_offered(m) && load_transfer(m);
}

// Carries the part of source `index` of the snapshot, whose checksums were right.
bool SimJob::carry_part(proto::NodeId id, std::size_t index) {
  Node& node = nodes_.at(id);
  const auto& sources = node.fetch->sources;
  const shmem::Arena &theirs = agent(sources[index].node).arena(), &ours = node.agent.arena();
  const std::uint32_t salt = proto::snapshot_salt(node.fetch->transfer);
  if (base::crc32c(theirs.snapshot(), salt) != theirs.snapshot_crcs()[0].load()) return false;
  const std::size_t words = theirs.snapshot().size() / sizeof(Step);
  const std::size_t begin = words * index / sources.size(),
                    end = words * (index + 1) / sources.size();
  const auto part = theirs.snapshot().subspan(begin * sizeof(Step), (end - begin) * sizeof(Step));
  std::ranges::copy(part, ours.snapshot().subspan(begin * sizeof(Step)).begin());
  node.gave.insert(sources[index].node);
  if (node.gave.size() < sources.size()) return true;
  ours.snapshot_crcs()[0].store(base::crc32c(ours.snapshot(), salt));
  ours.snapshot_used().store(theirs.snapshot_used().load());
  node.received.snapshot = true;
  most_sources = std::max(most_sources, sources.size());
  return true;
}

// The next result that the first source has; why it is not to be had any more.
std::string SimJob::carry_result(proto::NodeId id) {
  Node& node = nodes_.at(id);
  const shmem::Arena &theirs = agent(node.fetch->sources.front().node).arena(),
                     &ours = node.agent.arena();
  const Step next = node.received.kept_up_to + 1;
  if (theirs.kept_step(next).load() != next) return "the result is kept no more";
  ours.kept_step(next).store(0);
  std::ranges::copy(theirs.kept_result(next), ours.kept_result(next).begin());
  ours.kept_crcs(next)[0] = theirs.kept_crcs(next)[0];
  node.received.kept_up_to = next;
  return "";
}

// The next part of what is on its way to `node`.
bool SimJob::carry(proto::NodeId id) {
  Node& node = nodes_.at(id);
  if (!node.up || !node.fetch) return false;
  const auto fail = [&](proto::NodeId source, const std::string& why) {
    end_fetch(id);
    perform(id, node.agent.on_fetch_failed(fmt::format("host h{}: {}", source, why)));
    return true;
  };
  const auto& sources = node.fetch->sources;
  std::optional<std::size_t> gives;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const proto::NodeId source = sources[i].node;
    const TransferSource& serving = agent(source).transfer_source();
    if (!nodes_.at(source).up) return fail(source, "it is gone");
    if (!serving.active() || serving.base().transfer != node.fetch->transfer)
      return fail(source, "the state transfer has ended");
    if (node.gave.contains(source) || !serving.snapshot_complete()) continue;
    if (serving.snapshot_gone()) return fail(source, "the snapshot is gone");
    if (!gives) gives = i;
  }
  const proto::NodeId first = sources.front().node;
  if (gives) {
    if (!carry_part(id, *gives)) return fail(sources[*gives].node, "its snapshot is damaged");
  } else if (node.received.snapshot &&
             node.received.kept_up_to < agent(first).transfer_source().kept_up_to() &&
             node.agent.room_for(node.received.kept_up_to + 1)) {
    if (const std::string why = carry_result(id); !why.empty()) return fail(first, why);
  } else {
    return false;
  }
  node.received.newest =
      std::max(node.received.newest, agent(first).transfer_source().kept_up_to());
  for (const auto& [source, endpoints, name] : sources) {
    const Step kept =
        source == first ? node.received.kept_up_to : agent(source).transfer_source().kept_up_to();
    agent(source).on_reader_progress(
        id, TransferTarget::Received{.snapshot = node.gave.contains(source), .kept_up_to = kept});
  }
  node.agent.on_fetched(node.received);
  return true;
}

void SimJob::end_fetch(proto::NodeId id) {
  Node& node = nodes_.at(id);
  if (!node.fetch) return;
  for (const proto::SourceAgent& source : node.fetch->sources)
    agent(source.node).on_reader_progress(id, std::nullopt);
  node.fetch.reset();
  node.gave.clear();
}

// One look of an agent at its state transfer.
bool SimJob::attend(proto::NodeId id) {
  Node& node = nodes_.at(id);
  if (!node.up) return false;
  const bool carried = carry(id);
  if (!node.agent.transferring()) return carried;
  bool more = false;
  perform(id, node.agent.poll_transfer(&more));
  return carried || more;
}

}  // namespace regroup::membership
