// A communicator among processes that were started by anything: they find each other through a
// key-value store, and no agent serves them. Its ranks never change. docs/design/groups.md.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collective/group/arena_exchange.h"
#include "collective/group/heap.h"
#include "collective/group/peer_watch.h"
#include "collective/group/store.h"
#include "collective/group/tagged_messages.h"
#include "proto/world.h"
#include "regroup/communicator.h"
#include "shmem/arena.h"

namespace regroup::collective::ucx {
class PeerMesh;
}  // namespace regroup::collective::ucx

namespace regroup::collective::group {

// Thread-safe: threads may run operations of one group concurrently, if all ranks start the
// collective ones in the same order. Unlike a Communicator's, an operation that fails because a
// rank has ended says which one.
class Group {
 public:
  // An operation in progress.
  class Work {
   private:
    friend class Group;
    std::optional<Request> request;          // of a collective operation, or
    std::shared_ptr<TaggedMessage> message;  // a message
    bool done = false;
    base::Status status;
  };
  using Handle = std::shared_ptr<Work>;

  // Called by all `size` ranks with stores that see the same keys, which no other group uses.
  // `host`: ranks that give the same name share memory; "": those of one user on one machine do.
  // Blocks until all ranks have come, at most `timeout`. kDeadlineExceeded names ranks that have
  // not; kUnavailable: ranks are on several hosts, and UCX cannot be loaded.
  [[nodiscard]] static base::Result<std::unique_ptr<Group>> form(Store& store, int rank, int size,
                                                                 base::Duration timeout,
                                                                 const std::string& host = "");
  // Leaves the group: peers that wait for this rank later fail. Not while an operation runs.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  [[nodiscard]] int rank() const { return communicator_->rank(); }
  [[nodiscard]] int size() const { return communicator_->size(); }

  // Errors of all operations: kDeadlineExceeded, kInvalidArgument: as Communicator. kPeerLost names
  // a rank that has ended. kRevoked: abort(). After a failure all operations fail.

  // Blocks until the operation, not a message, is complete.
  [[nodiscard]] base::Status run(const Operation& operation, base::TimePoint deadline);
  // Starts a collective operation; its memory must live until it is complete.
  [[nodiscard]] base::Result<Handle> start(const Operation& operation, base::TimePoint deadline);
  // Starts a message; messages of one pair of ranks match by tag, in their order. `from`: a rank
  // or kAnyRank.
  [[nodiscard]] base::Result<Handle> send(int to, std::uint32_t tag, Input data,
                                          base::TimePoint deadline);
  [[nodiscard]] base::Result<Handle> receive(int from, std::uint32_t tag, Output out,
                                             base::TimePoint deadline);

  // Blocks until it is complete or `until` has passed; false: it is not.
  [[nodiscard]] bool wait(const Handle& work, base::TimePoint until);
  // How a complete operation ended, and for a receive the rank that it took the message of.
  [[nodiscard]] base::Status status_of(const Handle& work);
  [[nodiscard]] int source_of(const Handle& work);

  // Memory that the ranks of this host share: operations on it need no copy in between. Its content
  // is undefined. Valid as long as the pointer, also after the group. Null if there is none left.
  [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes) {
    return heap_->allocate(bytes);
  }
  [[nodiscard]] bool can_allocate() const { return !heap_->empty(); }

  // Ends all operations of this rank, also those in progress, with kRevoked. The others notice when
  // they miss it. Any thread.
  void abort(const std::string& why);

 private:
  Group(shmem::Arena arena, proto::World world, std::vector<Process> processes, int rank);
  [[nodiscard]] base::Status open(Store& store, base::TimePoint deadline);
  [[nodiscard]] base::Status open_mesh(Store& store, base::TimePoint deadline);
  [[nodiscard]] bool on_ended(std::size_t peer);
  [[nodiscard]] proto::SlotId slot_id_of(int rank) const;
  [[nodiscard]] shmem::MemberSlot& slot_of(int rank) const;
  [[nodiscard]] bool is_local(int rank) const;
  [[nodiscard]] base::Result<Handle> follow(base::Result<std::shared_ptr<TaggedMessage>> message);
  void revoke(base::Status why);
  [[nodiscard]] base::Status explain(base::Status status);
  [[nodiscard]] base::Status check_usable();
  [[nodiscard]] bool poll(Work& work);
  void finish(Work& work, base::Status status);

  const std::shared_ptr<const shmem::Arena> memory_;
  const shmem::Arena& arena_;  // *memory_
  const proto::World world_;
  const std::vector<Process> processes_;  // by rank
  const int rank_;
  const std::shared_ptr<Heap> heap_;
  std::vector<int> watched_;  // the ranks that the watch reports, by its index

  std::mutex failure_mutex_;  // taken after mutex_; never held while another is taken
  base::Status failure_;      // why this group failed; the first reason

  std::map<proto::MemberId, std::vector<std::byte>> addresses_;  // of the other ranks

  std::mutex mutex_;                     // of all below, and of calls of the communicator
  std::condition_variable changed_;      // a thread that slept on the doorbell has polled
  bool sleeper_ = false;                 // a thread sleeps on the doorbell, which has room for one
  std::shared_ptr<ucx::PeerMesh> mesh_;  // null: all ranks are on this host
  std::unique_ptr<Communicator> communicator_;
  std::optional<TaggedMessages> messages_;
  std::atomic<std::uint32_t> collectives_ = 0;  // in progress
  std::vector<std::atomic<bool>> closed_;       // by rank: it has left the group and ended
  std::unique_ptr<PeerWatch::Subscription> watch_;
};

}  // namespace regroup::collective::group
