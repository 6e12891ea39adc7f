// The state transfers of one node: as source, the data that members here and agents of other nodes
// may read; as target, the supply of the learners here. docs/design/catch_up.md.
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

// A node is the source of at most one transfer and the target of at most one, perhaps another. Each
// call returns effects, which the caller performs in order. `arena`: the node's, the same in all
// calls of a transfer, mapped unless a comment says otherwise. `world`: the newest World announced
// here. Not thread-safe, never blocks.
//
// Invariant: a learner never gets a result that the agent has not reported as received. Only poll()
// publishes kept_step() of a result, and the caller does not call poll() in a revoked generation.
class NodeTransfer {
 public:
  // `endpoints`: from which agents of other nodes fetch; "" until this node listens.
  NodeTransfer(proto::NodeId node, std::string endpoints)
      : node_(node), endpoints_(std::move(endpoints)) {}
  void set_endpoints(std::string endpoints) { endpoints_ = std::move(endpoints); }

  // The caller must call poll() while this is true.
  [[nodiscard]] bool active() const { return source_.active() || target_.active(); }

  // Begins to serve the transfer `order`, and reports to the coordinator that it does, or why not.
  // Ends a fetch, whose snapshot memory the new transfer needs. `over`: the generation is revoked
  // here. `arena` may be unmapped.
  [[nodiscard]] AgentEffects start_source(const proto::StartSource& order,
                                          const shmem::Arena& arena, const proto::World& world,
                                          bool over);
  // Begins to supply `learners` in the transfer `order`; ends an earlier transfer. If the source is
  // on this node, the learners read from it directly; else the caller must fetch.
  [[nodiscard]] AgentEffects start_target(const proto::StartTarget& order,
                                          const std::vector<TransferTarget::LearnerSlot>& learners,
                                          const shmem::Arena& arena);
  // Does a bounded part of the work. *more: call again at once.
  [[nodiscard]] AgentEffects poll(const shmem::Arena& arena, const proto::World& world, bool* more);
  // Call before publishing `world`, since its donors may overwrite the snapshot after that.
  [[nodiscard]] AgentEffects on_world(const shmem::Arena& arena, const proto::World& world);
  // The fetch failed: every learner that does not have its state yet is reported with `why`.
  [[nodiscard]] AgentEffects on_fetch_failed(const shmem::Arena& arena, const std::string& why);
  // Stops a fetch that has no learners. Call after any call that may remove a learner.
  [[nodiscard]] std::optional<StopFetch> stop_idle_fetch();
  // Ends both sides without a report. `arena` may be unmapped.
  [[nodiscard]] AgentEffects end(const shmem::Arena& arena);

  // Call before a slot is reassigned: records its owner's progress, which is lost after that.
  void before_slot_is_reassigned(const shmem::Arena& arena) {
    if (source_.active()) source_.read_state_words(arena);
  }
  void forget(proto::MemberId member) { target_.forget(member); }

  // Records what `reader`, an agent of another node, has received; empty once it has disconnected.
  void on_reader_progress(std::uint64_t reader, std::optional<TransferTarget::Received> has);
  // Records what the fetch has received so far.
  void on_fetched(const TransferTarget::Received& received) { fetched_ = received; }
  // True if the ring has room for the result of `step`, so that it can be fetched.
  [[nodiscard]] bool room_for(proto::Step step, const shmem::Arena& arena) const;
  // The newest step that a learner which has caught up may have applied; 0 for any other member.
  [[nodiscard]] proto::Step may_have(proto::MemberId member) const {
    return target_.may_have(member);
  }
  [[nodiscard]] const TransferSource& source() const { return source_; }

 private:
  // The origin of the state for the learners of target_.
  enum class Origin : std::uint8_t {
    kNone,     // none: there is no target, or the fetch was stopped; fetched_ does not change
    kLocal,    // source_ of this node
    kFetched,  // other nodes, from which the caller fetches: fetched_ is what it has received
  };
  void stop_fetch(AgentEffects* out);
  [[nodiscard]] proto::Step consumed() const;
  [[nodiscard]] bool snapshot_read() const;

  proto::NodeId node_;
  std::string endpoints_;
  TransferSource source_;
  std::map<std::uint64_t, TransferTarget::Received> readers_;  // agents of other nodes
  TransferTarget target_;
  Origin origin_ = Origin::kNone;
  TransferTarget::Received fetched_;
  proto::Step published_ = 0;  // value of fetched_.kept_up_to that poll() has published
};

}  // namespace regroup::membership
