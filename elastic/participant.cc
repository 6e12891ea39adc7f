// Joining, leaving and waiting. Implements docs/design/architecture.md sections 3 and 4;
// shmem/state_word.h has the compare-and-swaps.
#include "elastic/participant.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/printable.h"
#include "proto/canonical.h"
#include "shmem/generation_fence.h"

namespace regroup::elastic {
namespace {

using base::Code;
using base::Status;
using shmem::RealPolicy;

// Longest sleep. The agent rings the doorbell for every message, but not when it dies, so a member
// wakes up from time to time to check.
constexpr base::Duration kAgentCheck = std::chrono::seconds(1);
// Rank 0 reports diverged states first.
constexpr base::Duration kFirstToTell = std::chrono::seconds(2);
constexpr base::Duration kEndOfJob = std::chrono::seconds(10);

base::TimePoint now() { return base::SystemClock().now(); }

// Printed by member 0 only: with REGROUP_WORLD=alone each rank is a World of its own.
void warn_of_no_checkpoints() {
  constexpr std::string_view kLine =
      "regroup: REGROUP_WORLD=alone: --checkpoint is ignored, as each rank trains alone\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kLine.data(), kLine.size());
}

// Why a member whose device line is `line` has not enough leaf buffers on its GPU, as a part of a
// sentence; "" if it has.
std::string why_no_leaf_buffers(const ReceivedLines::Line* line, std::uint32_t shards,
                                const std::string& why_no_line) {
  if (line == nullptr)
    return why_no_line.empty() ? "its leaf buffers are in the host's memory (--device-memory)"
                               : why_no_line;
  const std::uint32_t needed = proto::canonical_buffers(shards);
  if (line->line.leaf_buffers >= needed) return "";
  return fmt::format("{} need {} leaf buffers, --device-memory has {}",
                     base::counted(shards, "shard"), needed, line->line.leaf_buffers);
}

}  // namespace

Participant::Participant(shmem::Arena arena, proto::SlotIndex slot, std::uint64_t seed,
                         AgentLink link, base::Duration timeout, bool takes_notice)
    : arena_(std::move(arena)),
      slot_(slot),
      seed_(seed),
      timeout_(timeout),
      link_(std::move(link)),
      why_not_cuda_("it has no agent, which would give memory of its GPU"),
      term_notice_(takes_notice ? &own_slot() : nullptr) {}

base::Result<std::unique_ptr<Participant>> Participant::connect(const Environment& env,
                                                                proto::Join declaration,
                                                                proto::Ready ready,
                                                                base::Duration timeout,
                                                                const UseLine& use_line) {
  if (env.alone && env.checkpoint_every > 0 && env.member == 0) warn_of_no_checkpoints();
  if (env.alone) return alone(env, declaration, timeout, "REGROUP_WORLD=alone: a world of one");
  REGROUP_ASSIGN_OR_RETURN(const auto launch, read_launch());
  const auto inside = [](pid_t rank) {
    return fmt::format("process {} is a rank of the World, and started this one: a world of one",
                       rank);
  };
  if (!launch.has_value() && !env.agent_socket.empty()) {
    if (const pid_t rank = env.fixed ? read_rank_above() : 0; rank != 0)
      return alone(env, declaration, timeout, inside(rank));
    REGROUP_ASSIGN_OR_RETURN(auto link, AgentLink::connect(env.agent_socket));
    declaration.member = env.member;
    // SIGTERM ends a rank of fixed size, unless there is a state to save first.
    const bool takes_notice = !env.fixed || env.checkpoint_every > 0;
    return through(std::move(link), std::move(declaration), std::move(ready), timeout, use_line,
                   takes_notice);
  }
  if (!launch.has_value()) return alone(env, declaration, timeout, "no launcher: a world of one");
  const DetectedLaunch& ranks = *launch;
  if (ranks.rank_joined != 0) return alone(env, declaration, timeout, inside(ranks.rank_joined));
  REGROUP_ASSIGN_OR_RETURN(auto met, connect_ranks(ranks, env, timeout));
  declaration.member = ranks.rank;
  auto joined =
      through(std::move(met.link), std::move(declaration), std::move(ready), timeout, use_line,
              /*takes_notice=*/false);
  if (!joined.ok()) return joined;
  count_world();
  (*joined)->server_ = std::move(met.server);
  (*joined)->single_world_ = std::move(met.guard);
  return joined;
}

base::Result<std::uint32_t> Participant::expected_shards(const Environment& env) {
  if (env.shards != 0) return env.shards;
  if (env.alone) return 1U;
  REGROUP_ASSIGN_OR_RETURN(const auto launch, read_launch());
  if (launch.has_value()) return launch->rank_joined != 0 ? 1U : std::bit_ceil(launch->size);
  if (env.agent_socket.empty() || (env.fixed && read_rank_above() != 0)) return 1U;
  return base::unavailable(
      "the number of shards of this job is not known before join(): the job takes it from the "
      "checkpoint of one of its hosts; start it with --shards V");
}

base::Result<std::unique_ptr<Participant>> Participant::through(
    AgentLink link, proto::Join declaration, proto::Ready ready, base::Duration timeout,
    const UseLine& use_line, bool takes_notice) {
  REGROUP_RETURN_IF_ERROR(link.send(std::move(declaration)));
  base::Fd memfd;
  REGROUP_ASSIGN_OR_RETURN(auto answer, link.receive(now() + timeout, &memfd));
  if (const auto* refused = std::get_if<proto::Refused>(&answer.body))
    return base::invalid_argument(refused->reason);
  if (const auto* late = std::get_if<proto::Excluded>(&answer.body))
    return base::left(late->reason);
  const auto* welcome = std::get_if<proto::Welcome>(&answer.body);
  if (welcome == nullptr || !memfd.valid())
    return base::internal_error("join: the agent sent an unexpected reply");
  REGROUP_ASSIGN_OR_RETURN(auto arena, shmem::Arena::open(std::move(memfd)));
  if (welcome->slot >= arena.spec().slots)
    return base::internal_error("join: the agent assigned a slot that does not exist");
  REGROUP_ASSIGN_OR_RETURN(auto lines,
                           receive_lines(&link, welcome->device_lines, now() + timeout));
  REGROUP_RETURN_IF_ERROR(arena.reserve_slot(welcome->slot));
  arena.populate(welcome->slot);
  REGROUP_RETURN_IF_ERROR(arena.claim_slot(welcome->slot));
  proto::PlaneFacts& planes = ready.planes ? *ready.planes : ready.planes.emplace();
  std::string& why_not_cuda = planes.reasons[static_cast<std::size_t>(proto::Plane::kCuda)];
  if (why_not_cuda.empty())
    why_not_cuda =
        why_no_leaf_buffers(lines.of(welcome->slot), arena.spec().shards, welcome->no_device_line);
  if (why_not_cuda.empty() && use_line) why_not_cuda = use_line(*lines.of(welcome->slot)).message();
  std::string& why_not_nccl = planes.reasons[static_cast<std::size_t>(proto::Plane::kNccl)];
  if (why_not_nccl.empty()) why_not_nccl = why_not_cuda;  // within a host it is plane cuda
  std::string why = why_not_cuda;
  REGROUP_RETURN_IF_ERROR(link.send(std::move(ready)));
  std::unique_ptr<Participant> joined(new Participant(
      std::move(arena), welcome->slot, welcome->seed, std::move(link), timeout, takes_notice));
  joined->device_lines_ = std::move(lines);
  joined->no_device_line_ = welcome->no_device_line;
  joined->why_not_cuda_ = std::move(why);
  return joined;
}

base::Result<ReceivedLines> Participant::receive_lines(AgentLink* link, std::uint32_t count,
                                                       base::TimePoint deadline) {
  ReceivedLines lines;
  for (; count > 0; --count) {
    base::Fd descriptor;
    REGROUP_ASSIGN_OR_RETURN(auto message, link->receive(deadline, &descriptor));
    auto* const line = std::get_if<proto::DeviceLine>(&message.body);
    if (line == nullptr || !descriptor.valid())
      return base::internal_error("join: the agent sent an unexpected reply");
    lines.add(std::move(*line), std::move(descriptor));
  }
  return lines;
}

const ReceivedLines& Participant::device_lines() {
  (void)handle_agent_messages().ok();
  return device_lines_;
}

base::Result<std::unique_ptr<Participant>> Participant::alone(const Environment& env,
                                                              const proto::Join& join,
                                                              base::Duration timeout,
                                                              const std::string& why) {
  const std::uint32_t shards = env.shards != 0 ? env.shards : 1;
  shmem::ArenaSpec spec;
  spec.shards = shards;
  spec.buffers_per_slot = proto::canonical_buffers(shards);
  spec.elements = join.elements;
  spec.element_bytes = join.element_bytes;
  REGROUP_ASSIGN_OR_RETURN(auto arena, shmem::Arena::create(spec));
  arena.assign_slot(0, 0);
  REGROUP_RETURN_IF_ERROR(arena.reserve_slot(0));
  REGROUP_RETURN_IF_ERROR(arena.claim_slot(0));
  proto::World world;
  world.incarnation = world.generation = 1;
  world.shards = shards;
  world.members = {{.id = 0}};
  world.plan.resize(shards);
  world.why = why;
  REGROUP_RETURN_IF_ERROR(arena.publish_world(world));
  return std::unique_ptr<Participant>(
      new Participant(std::move(arena), 0, env.seed, AgentLink(), timeout, false));
}

bool Participant::revoked() const {
  return arena_.member_slot(slot_).revoked_up_to.load(std::memory_order_acquire) >=
         world_.generation;
}

Status Participant::wait(const std::function<bool()>& ready, const std::string& what) {
  const base::TimePoint deadline = now() + timeout_;
  for (;;) {
    const auto done = [&] {
      return ready() || revoked() ||
             own_slot().leave_request.load(std::memory_order_acquire) == shmem::kNow || asked_();
    };
    const bool woken =
        shmem::wait_until(own_slot().bell, done, std::min(deadline, now() + kAgentCheck));
    if (woken && ready()) return {};
    if (own_slot().leave_request.load(std::memory_order_acquire) == shmem::kNow) return excluded();
    if (woken && asked_()) {
      answer_();
      continue;
    }
    if (woken) return base::revoked(fmt::format("generation {} is over", world_.generation));
    REGROUP_RETURN_IF_ERROR(handle_agent_messages());
    if (now() >= deadline) return base::deadline_exceeded(what);
  }
}

bool Participant::pause(const std::function<bool()>& ready, base::TimePoint deadline) {
  for (;;) {
    if (shmem::wait_until(own_slot().bell, ready, std::min(deadline, now() + kAgentCheck)))
      return true;
    if (now() >= deadline || handle_agent_messages().code() == Code::kPeerLost) return false;
  }
}

void Participant::while_waiting(std::function<bool()> asked, std::function<void()> answer) {
  asked_ = std::move(asked);
  answer_ = std::move(answer);
}

base::Result<Participant::Joined> Participant::regroup() {
  auto joined = regroup_or([] { return false; });
  return joined.ok() ? base::Result(**joined) : joined.status();
}

base::Result<std::optional<Participant::Joined>> Participant::regroup_or(
    const std::function<bool()>& other) {
  // Must precede any wait: the generation fence of the next World waits for each member's `left`.
  shmem::leave_generation<RealPolicy>(own_slot().left_generation, world_.generation);
  shmem::ring_all(arena_, slot_);
  for (;;) {
    REGROUP_RETURN_IF_ERROR(await_newer_world(other));
    if (!newer_world()) {
      if (other()) return std::optional<Joined>();
      continue;
    }
    auto world = arena_.read_world(arena_.newest_world());
    if (!world.ok() && world.code() == Code::kUnavailable) continue;
    if (!world.ok()) return world.status();
    const int rank = world->rank_of(slot_id());
    if (rank < 0) {  // not admitted yet, or excluded, which the agent announces
      seen_ = world->generation;
      continue;
    }
    if (world->members[static_cast<std::size_t>(rank)].needs_state &&
        !enter_as_joining_member(*world))
      continue;
    auto joined = join(std::move(*world));
    if (!joined.ok() || joined->has_value()) return joined;
  }
}

base::Result<std::optional<Participant::Joined>> Participant::join(proto::World world) {
  proto::StateWord from = state();
  if (from.phase == proto::Phase::kNone && !enter_as_joining_member(world))
    return std::optional<Joined>();
  from = state();
  if (from.phase == proto::Phase::kClosed && from.position <= world.resume) {
    if (shmem::accept_commit<RealPolicy>(own_slot().state, from))
      return std::optional(Joined::kOpenIsCommitted);
    return std::optional<Joined>();
  }
  const proto::Step at =
      from.phase == proto::Phase::kClosed ? from.position.before().step() : from.position.step();
  // A section that was closed comes after its step, so its position differs from the resume
  // position; the member runs it and later sections again.
  if (at != world.resume.step() &&
      !(from.phase == proto::Phase::kClosed && from.position.section() != 0)) {
    return base::internal_error(
        fmt::format("World {} resumes after step {}, but this member is after step {}",
                    world.generation, world.resume.step(), at));
  }
  shmem::hold_fence<RealPolicy>(own_slot().left_generation, world.generation);
  if (!shmem::join_generation<RealPolicy>(own_slot().state, own_slot().revoked_up_to, from,
                                          world.generation)) {
    return std::optional<Joined>();
  }
  world_ = std::move(world);
  shmem::ring_all(arena_, slot_);
  return std::optional(Joined::kInWorld);
}

bool Participant::newer_world() {
  const proto::Generation newest = arena_.newest_world();
  return newest > std::max(world_.generation, seen_) &&
         own_slot().revoked_up_to.load(std::memory_order_acquire) < newest;
}

Status Participant::await_newer_world(const std::function<bool()>& other) {
  const base::TimePoint start = now();
  for (;;) {
    const auto done = [&] {
      return newer_world() || other() ||
             own_slot().leave_request.load(std::memory_order_acquire) == shmem::kNow || asked_();
    };
    const bool woken = shmem::wait_until(own_slot().bell, done, now() + kAgentCheck);
    if (own_slot().leave_request.load(std::memory_order_acquire) == shmem::kNow) return excluded();
    if (woken && !newer_world() && !other()) {
      if (asked_()) answer_();
      continue;
    }
    if (woken) return {};
    REGROUP_RETURN_IF_ERROR(handle_agent_messages());
    // Waiting below --min may be long: only the launcher's --min-members-timeout ends it. The first
    // World has the caller's timeout.
    if (world_.generation == 0 && !link_.connected() && now() - start > timeout_) {
      return base::deadline_exceeded("join: no World was formed in time");
    }
  }
}

bool Participant::enter_as_joining_member(const proto::World& world) {
  const proto::StateWord from = state();
  if (from.phase == proto::Phase::kNone) {
    shmem::hold_fence<RealPolicy>(own_slot().left_generation, world.generation);
    // A full barrier: the check of `revoked_up_to` that follows must not overtake it (tests/model).
    return shmem::swap_state<RealPolicy>(
        own_slot().state, from,
        {proto::Phase::kCommitted, true, world.generation - 1, world.resume});
  }
  if (from.phase == proto::Phase::kCommitted && from.position == world.resume) return true;
  return shmem::swap_state<RealPolicy>(
      own_slot().state, from, {proto::Phase::kCommitted, true, from.generation, world.resume});
}

Status Participant::open(proto::Position next) {
  const proto::StateWord at = state();
  if (at.phase == proto::Phase::kCommitted && !at.revoked && at.generation == world_.generation &&
      shmem::open_transaction<RealPolicy>(own_slot().state, world_.generation, at.position, next)) {
    return {};
  }
  return base::revoked(fmt::format("generation {} is over", world_.generation));
}

Status Participant::commit() {
  if (shmem::commit_transaction<RealPolicy>(own_slot().state, world_.generation, state().position))
    return {};
  return base::revoked(fmt::format("generation {} is over", world_.generation));
}

Status Participant::announce_drained() {
  return link_.connected() ? link_.send(proto::Drained{}) : Status();
}

Status Participant::publish_address(std::span<const std::byte> address) {
  return link_.send(proto::PeerAddresses{world_.generation,
                                         {{own_member().id, {address.begin(), address.end()}}}});
}

// Ignores an error of the link; the next wait reports it.
std::optional<std::vector<std::byte>> Participant::address_of(proto::MemberId member) {
  (void)handle_agent_messages().ok();
  const auto found = peer_addresses_.find(member);
  if (peer_addresses_generation_ != world_.generation || found == peer_addresses_.end())
    return std::nullopt;
  return found->second;
}

// The addresses of many members come in several messages.
void Participant::add_peer_addresses(proto::PeerAddresses addresses) {
  if (addresses.generation < peer_addresses_generation_) return;
  if (std::exchange(peer_addresses_generation_, addresses.generation) != addresses.generation)
    peer_addresses_.clear();
  for (proto::MemberAddress& entry : addresses.members)
    peer_addresses_[entry.member] = std::move(entry.address);
}

void Participant::suspect(proto::MemberId member, const std::string& why) {
  (void)link_.send(proto::PeerSuspect{member, why}).ok();
}

void Participant::tell_carrier_lost(proto::Generation generation, const std::string& why) {
  (void)link_.send(proto::CarrierLost{generation, why}).ok();
}

void Participant::end_diverged(const std::string& why) {
  const auto released = [&] {
    return own_slot().leave_request.load(std::memory_order_acquire) == shmem::kNow;
  };
  const auto ended_within = [&](base::Duration pause) {
    for (const base::TimePoint until = now() + pause; now() < until;) {
      if (shmem::wait_until(own_slot().bell, released, std::min(until, now() + kAgentCheck)) ||
          !handle_agent_messages().ok())
        return true;
    }
    return false;
  };
  if (!link_.connected() || (rank() != 0 && ended_within(kFirstToTell))) return;
  if (link_.send(proto::Diverged{own_member().id, why}).ok()) (void)ended_within(kEndOfJob);
}

Status Participant::handle_agent_messages() {
  while (link_.connected() && exclusion_.ok()) {
    base::Fd descriptor;
    auto message = link_.receive(base::TimePoint{}, &descriptor);
    if (message.code() == Code::kDeadlineExceeded) break;
    if (!message.ok()) return message.status();
    if (auto* excluded = std::get_if<proto::Excluded>(&message->body)) {
      exclusion_ = {Code::kLeft, excluded->reason};
    } else if (auto* over = std::get_if<proto::Refused>(&message->body)) {
      exclusion_ = {Code::kPeerLost, over->reason};  // a World of fixed size has failed
    } else if (auto* addresses = std::get_if<proto::PeerAddresses>(&message->body)) {
      add_peer_addresses(std::move(*addresses));
    } else if (auto* line = std::get_if<proto::DeviceLine>(&message->body);
               line != nullptr && (descriptor.valid() || line->line == 0)) {
      device_lines_.add(std::move(*line), std::move(descriptor));
    } else {
      return base::internal_error("the agent of this host sent an unexpected message");
    }
  }
  return exclusion_;
}

void Participant::leave_all_generations() {
  if (single_world_) single_world_->finished();
  shmem::leave_all_generations<RealPolicy>(own_slot().left_generation);
  shmem::ring_all(arena_, slot_);
}

Status Participant::excluded() {
  leave_all_generations();
  if (Status status = handle_agent_messages(); !status.ok()) return status;
  return base::left("this member belongs to no World any more");
}

}  // namespace regroup::elastic
