// The state transfers of one node: as source, what members here and agents of other nodes may read,
// and as target, from where the learners here get the state. docs/design/catch_up.md.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "membership/agent/agent_effects.h"
#include "membership/agent/transfer_source.h"
#include "membership/agent/transfer_target.h"
#include "proto/node_message.h"
#include "proto/world.h"
#include "shmem/arena.h"

namespace regroup::membership {

// A node is source and target of one transfer each at most, of different ones perhaps. A call
// returns the effects that its caller performs, in order. `arena` and `world` are those of the
// node: the same arena in all calls of a transfer, mapped unless said otherwise, and the newest
// World announced here. Not thread-safe, never blocks.
//
// Invariant: a learner never gets a result that the agent has not reported as received: kept_step()
// of a result is published only by poll(), which its caller calls in no revoked generation.
class NodeTransfer {
 public:
  // `endpoints`: where agents of other nodes fetch from this one; "" until they can.
  NodeTransfer(proto::NodeId node, std::string endpoints)
      : node_(node), endpoints_(std::move(endpoints)) {}
  void set_endpoints(std::string endpoints) { endpoints_ = std::move(endpoints); }

  // The caller polls while this is true.
  [[nodiscard]] bool active() const { return source_.active() || target_.active(); }

  // Begins to be the source of `order`, and reports that to the coordinator, or why not. `over`:
  // the generation is revoked here. A fetch ends, since the snapshot's memory is now the new
  // transfer's. `arena` may be unmapped.
  [[nodiscard]] AgentEffects start_source(const proto::StartSource& order,
                                          const shmem::Arena& arena, const proto::World& world,
                                          bool over);
  // Begins to be the target of `order` for `learners`; ends the transfer before. From a source on
  // this node the learners read directly; else the caller fetches.
  [[nodiscard]] AgentEffects start_target(const proto::StartTarget& order,
                                          const std::vector<TransferTarget::LearnerSlot>& learners,
                                          const shmem::Arena& arena);
  // Does the next part of the work. *more: call again at once.
  [[nodiscard]] AgentEffects poll(const shmem::Arena& arena, const proto::World& world, bool* more);
  // Call before `world` is published: afterwards its donors may overwrite the snapshot.
  [[nodiscard]] AgentEffects on_world(const shmem::Arena& arena, const proto::World& world);
  // The fetch failed: every learner that does not have its state yet is reported with `why`.
  [[nodiscard]] AgentEffects on_fetch_failed(const shmem::Arena& arena, const std::string& why);
  // A fetch without learners is of no use. Call after any call that may remove one.
  [[nodiscard]] std::optional<StopFetch> stop_idle_fetch();
  // Ends both sides, without a report. `arena` may be unmapped.
  [[nodiscard]] AgentEffects end(const shmem::Arena& arena);

  // Call before a slot is reassigned: its owner's progress counts, and is readable only until then.
  void before_slot_is_reassigned(const shmem::Arena& arena) {
    if (source_.active()) source_.read_state_words(arena);
  }
  void forget(proto::MemberId member) { target_.forget(member); }

  // What an agent of another node, `reader`, has received; nothing once it has gone.
  void on_reader_progress(std::uint64_t reader, std::optional<TransferTarget::Received> has);
  // What the fetch has received so far.
  void on_fetched(const TransferTarget::Received& received) { fetched_ = received; }
  // True if the ring has room for the result of `step`, which is to be fetched.
  [[nodiscard]] bool room_for(proto::Step step, const shmem::Arena& arena) const;
  // The newest step that a learner which has caught up may have applied; 0 for any other member.
  [[nodiscard]] proto::Step may_have(proto::MemberId member) const {
    return target_.may_have(member);
  }
  [[nodiscard]] const TransferSource& source() const { return source_; }

 private:
  // From where the learners of target_ get the state.
  enum class Supply : std::uint8_t {
    kNone,     // from nowhere: no target, or a fetch that was stopped; fetched_ stays as it is
    kLocal,    // they read what source_ writes
    kFetched,  // the caller fetches: fetched_ is what has been received
  };
  void stop_fetch(AgentEffects* out);
  [[nodiscard]] proto::Step consumed() const;
  [[nodiscard]] bool snapshot_read() const;

  proto::NodeId node_;
  std::string endpoints_;
  TransferSource source_;
  std::map<std::uint64_t, TransferTarget::Received> readers_;  // agents of other nodes
  TransferTarget target_;
  Supply supply_ = Supply::kNone;
  TransferTarget::Received fetched_;
  proto::Step published_ = 0;  // of fetched_.kept
};

}  // namespace regroup::membership
