// Locks: mutex_ covers the communicator, of which one thread at a time makes calls. A thread that
// waits for an operation of its own holds it while it polls only, so other threads can start and
// finish theirs; run() alone holds it throughout, when nothing else is in progress, since most
// programs have one thread that communicates.
#include "collective/group/group.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <thread>
#include <utility>

#include "collective/backends/backends.h"
#include "collective/ucx/factory.h"
#include "collective/ucx/peer_mesh.h"
#include "shmem/doorbell.h"
#include "shmem/generation_fence.h"

namespace regroup::collective::group {
namespace {

constexpr proto::Generation kGeneration = 1;
// How long a waiting thread yields before it sleeps, and the longest sleep: a thread that took over
// the polling from another must not depend on a ring that came before.
constexpr auto kYields = std::chrono::microseconds(50);
constexpr auto kNap = std::chrono::milliseconds(100);
constexpr auto kMeshNap = std::chrono::milliseconds(1);

}  // namespace

Group::Group(shmem::Arena arena, proto::World world, std::vector<Process> processes, int rank)
    : memory_(std::make_shared<const shmem::Arena>(std::move(arena))),
      arena_(*memory_),
      world_(std::move(world)),
      processes_(std::move(processes)),
      rank_(rank),
      heap_(std::make_shared<Heap>(memory_, tail_of_slot(arena_, slot_id_of(rank).slot))),
      closed_(processes_.size()) {}

base::Result<std::unique_ptr<Group>> Group::form(Store& store, int rank, int size,
                                                 base::Duration timeout, const std::string& host) {
  if (size < 1 || rank < 0 || rank >= size)
    return base::invalid_argument(
        fmt::format("group: expected a rank from 0 to {}, got {}", size - 1, rank));
  const base::TimePoint deadline = base::SystemClock().now() + timeout;
  REGROUP_ASSIGN_OR_RETURN(const auto own, this_process(host));
  REGROUP_ASSIGN_OR_RETURN(auto processes, exchange_processes(store, rank, size, own, deadline));
  REGROUP_ASSIGN_OR_RETURN(auto world, world_of(processes));
  REGROUP_ASSIGN_OR_RETURN(auto arena, share_arena(store, world, processes, rank, deadline));
  REGROUP_RETURN_IF_ERROR(
      arena.reserve_slot(world.members[static_cast<std::size_t>(rank)].slot_id.slot));
  std::unique_ptr<Group> group(
      new Group(std::move(arena), std::move(world), std::move(processes), rank));
  REGROUP_RETURN_IF_ERROR(group->open(store, deadline));
  return group;
}

// Connections are made when operations need them; the addresses are exchanged here, since nothing
// may block then.
base::Status Group::open_mesh(Store& store, base::TimePoint deadline) {
  // A context of its own: groups of one process run in several threads, and the meshes of a context
  // share its listener.
  REGROUP_ASSIGN_OR_RETURN(auto context, ucx::open_ucx());
  const int size = static_cast<int>(processes_.size());
  const auto key_of = [](int rank) { return fmt::format("address/{}", rank); };
  // The reasons that a mesh publishes when it fails have no reader: the store may be gone by then.
  auto forming = std::make_shared<bool>(true);
  ucx::Addresses addresses{
      .publish =
          [&store, forming, key = key_of(rank_)](std::span<const std::byte> own) {
            if (!*forming) return base::Status();
            return store.set(key, {reinterpret_cast<const char*>(own.data()), own.size()});
          },
      .find = [this](proto::MemberId rank) -> std::optional<std::vector<std::byte>> {
        const auto found = addresses_.find(rank);
        if (found == addresses_.end()) return std::nullopt;
        return found->second;
      },
      .on_peer_lost =
          [this](proto::MemberId rank, const std::string& why) {
            revoke(base::peer_lost(fmt::format("rank {}: {}", rank, why)));
          },
      .on_peer_silent =
          [this](proto::MemberId rank, bool host_answers, const std::string& why) {
            if (!host_answers) revoke(base::peer_lost(fmt::format("rank {}: {}", rank, why)));
          }};
  REGROUP_ASSIGN_OR_RETURN(mesh_, ucx::open_peer_mesh(std::move(context), arena_, world_,
                                                      slot_id_of(rank_), std::move(addresses)));
  for (int rank = 0; rank < size; ++rank) {
    // Of this host's too: messages to them pass the mesh.
    if (rank == rank_) continue;
    REGROUP_ASSIGN_OR_RETURN(const auto text, store.get(key_of(rank), deadline));
    const auto* const bytes = reinterpret_cast<const std::byte*>(text.data());
    addresses_.emplace(static_cast<proto::MemberId>(rank),
                       std::vector<std::byte>(bytes, bytes + text.size()));
  }
  *forming = false;
  return {};
}

base::Status Group::open(Store& store, base::TimePoint deadline) {
  shmem::hold_fence<shmem::RealPolicy>(slot_of(rank_).left_generation, kGeneration);
  std::vector<pid_t> pids;
  bool all_here = true;
  for (int r = 0; r < static_cast<int>(processes_.size()); ++r) {
    all_here = all_here && is_local(r);
    if (r == rank_ || !is_local(r)) continue;
    watched_.push_back(r);
    pids.push_back(processes_[static_cast<std::size_t>(r)].pid);
  }
  if (!all_here) REGROUP_RETURN_IF_ERROR(open_mesh(store, deadline));
  REGROUP_ASSIGN_OR_RETURN(communicator_,
                           backends::open_communicator({arena_, world_, slot_id_of(rank_), mesh_}));
  messages_.emplace(*communicator_);
  REGROUP_ASSIGN_OR_RETURN(PeerWatch* const watch, PeerWatch::shared());
  // Threads of one process are watched in vain, but harmlessly: it outlives this object.
  REGROUP_ASSIGN_OR_RETURN(watch_, watch->add(pids, [this](std::size_t index) {
    return on_ended(static_cast<std::size_t>(watched_[index]));
  }));
  // The last rank to come must not be the only one that knows that the arena can be opened.
  return run(Operation::barrier(), deadline);
}

Group::~Group() {
  watch_.reset();  // it calls on_ended()
  slot_of(rank_).finished.store(1, std::memory_order_release);
}

proto::SlotId Group::slot_id_of(int rank) const {
  return world_.members[static_cast<std::size_t>(rank)].slot_id;
}

shmem::MemberSlot& Group::slot_of(int rank) const {
  return arena_.member_slot(slot_id_of(rank).slot);
}

bool Group::is_local(int rank) const { return slot_id_of(rank).node == arena_.spec().node; }

// In the thread of the watch. A rank that has left the group may end: what it sent is in the arena.
// Only an operation that still waits for it a second later has to fail.
bool Group::on_ended(std::size_t peer) {
  const std::string who = fmt::format("rank {} (pid {})", peer, processes_[peer].pid);
  if (slot_of(static_cast<int>(peer)).finished.load(std::memory_order_acquire) == 0) {
    revoke(base::peer_lost(fmt::format("{} ended", who)));
    return false;
  }
  if (!closed_[peer].exchange(true)) return true;
  if (collectives_.load() == 0) {
    shmem::ring(slot_of(rank_).bell);  // for a thread that waits for a message of that rank
    return true;
  }
  revoke(base::peer_lost(fmt::format("{} has left the group and ended", who)));
  return false;
}

void Group::revoke(base::Status why) {
  {
    const std::lock_guard lock(failure_mutex_);
    if (failure_.ok()) failure_ = std::move(why);
  }
  shmem::MemberSlot& own = slot_of(rank_);
  own.revoked_up_to.store(kGeneration, std::memory_order_seq_cst);
  shmem::ring(own.bell);
}

void Group::abort(const std::string& why) {
  revoke(base::revoked("the group was aborted: " + why));
}

// The communicator knows only that its generation is over.
base::Status Group::explain(base::Status status) {
  const std::lock_guard lock(failure_mutex_);
  if (failure_.ok() && !status.ok() && status.code() != base::Code::kInvalidArgument)
    failure_ = status;
  if (status.code() == base::Code::kRevoked && !failure_.ok()) return failure_;
  return status;
}

base::Status Group::check_usable() {
  const std::lock_guard lock(failure_mutex_);
  return failure_;
}

base::Status Group::run(const Operation& operation, base::TimePoint deadline) {
  {
    const std::lock_guard lock(mutex_);
    REGROUP_RETURN_IF_ERROR(check_usable());
    if (collectives_.load() == 0 && messages_->empty() && !sleeper_) {
      collectives_ = 1;
      base::Status status = communicator_->run(operation, deadline);
      collectives_ = 0;
      return explain(std::move(status));
    }
  }
  REGROUP_ASSIGN_OR_RETURN(const Handle work, start(operation, deadline));
  (void)wait(work, base::TimePoint::max());
  return status_of(work);
}

base::Result<Group::Handle> Group::start(const Operation& operation, base::TimePoint deadline) {
  const std::lock_guard lock(mutex_);
  REGROUP_RETURN_IF_ERROR(check_usable());
  auto request = communicator_->start(operation, deadline);
  if (!request.ok()) return explain(request.status());
  auto work = std::make_shared<Work>();
  work->request = *request;
  ++collectives_;
  return work;
}

base::Result<Group::Handle> Group::send(int to, std::uint32_t tag, Input data,
                                        base::TimePoint deadline) {
  const std::lock_guard lock(mutex_);
  REGROUP_RETURN_IF_ERROR(check_usable());
  return follow(messages_->send(to, tag, data, deadline));
}

base::Result<Group::Handle> Group::receive(int from, std::uint32_t tag, Output out,
                                           base::TimePoint deadline) {
  const std::lock_guard lock(mutex_);
  REGROUP_RETURN_IF_ERROR(check_usable());
  return follow(messages_->receive(from, tag, out, deadline));
}

base::Result<Group::Handle> Group::follow(base::Result<std::shared_ptr<TaggedMessage>> message) {
  if (!message.ok()) return explain(message.status());
  auto work = std::make_shared<Work>();
  work->message = std::move(*message);
  return work;
}

void Group::finish(Work& work, base::Status status) {
  work.done = true;
  work.status = explain(std::move(status));
  if (work.request) --collectives_;
}

// With mutex_ held: advances everything, and says whether `work` is complete.
bool Group::poll(Work& work) {
  if (work.done) return true;
  if (work.request) {
    const auto done = work.request->test();
    if (!done.ok()) {
      finish(work, done.status());
    } else if (*done) {
      finish(work, {});
    }
  }
  // Other threads' messages too: only one thread polls while the others sleep.
  const base::Status advanced = messages_->advance();
  if (work.message && !work.done) {
    if (work.message->done) {
      finish(work, work.message->status);
    } else if (!advanced.ok()) {
      finish(work, advanced);
    } else {
      const int peer = work.message->peer;
      const auto is_closed = [](const std::atomic<bool>& closed) { return closed.load(); };
      const bool lost = peer == kAnyRank ? std::ranges::count_if(closed_, is_closed) + 1 == size()
                                         : closed_[static_cast<std::size_t>(peer)].load();
      if (lost)
        finish(work, base::peer_lost(fmt::format(
                         "{} has left the group and ended",
                         peer == kAnyRank ? "every other rank" : fmt::format("rank {}", peer))));
    }
  }
  return work.done;
}

bool Group::wait(const Handle& work, base::TimePoint until) {
  const base::SystemClock clock;
  std::unique_lock lock(mutex_);
  const base::TimePoint yields_until = clock.now() + kYields;
  shmem::MemberSlot& own = slot_of(rank_);
  const auto let_others_in = [&lock] {
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  };
  for (;;) {
    const std::uint32_t seen = own.bell.count.load(std::memory_order_acquire);
    if (poll(*work)) return true;
    const base::TimePoint now = clock.now();
    if (now >= until) return false;
    if (now < yields_until) {
      let_others_in();
      continue;
    }
    if (mesh_) {
      // What comes from the network rings no bell, so the mesh sleeps, of which one thread makes
      // calls: for a short time, as other threads wait for the lock.
      mesh_->sleep(seen, std::min(until, now + kMeshNap));
      let_others_in();
      continue;
    }
    const base::TimePoint nap = std::min(until, now + kNap);
    if (sleeper_) {
      changed_.wait_until(lock, nap);
      continue;
    }
    sleeper_ = true;
    own.bell.sleeping.store(1, std::memory_order_seq_cst);
    const bool came = poll(*work);  // a peer that did not see `sleeping` did not ring
    if (!came) {
      lock.unlock();
      shmem::RealPolicy::wait(own.bell.count, seen, nap);
      lock.lock();
    }
    own.bell.sleeping.store(0, std::memory_order_relaxed);
    sleeper_ = false;
    changed_.notify_all();
    if (came) return true;
  }
}

base::Status Group::status_of(const Handle& work) {
  const std::lock_guard lock(mutex_);
  return work->status;
}

int Group::source_of(const Handle& work) {
  const std::lock_guard lock(mutex_);
  return work->message ? work->message->source : kAnyRank;
}

}  // namespace regroup::collective::group
