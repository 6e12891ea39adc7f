// The coordinator's side of state transfers, by which joining members catch up while the others
// train: chooses the source nodes and the learners, and admits the learners once all have caught
// up. docs/design/catch_up.md.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/clock.h"
#include "membership/coordinator/member_table.h"
#include "membership/coordinator/node_table.h"
#include "membership/coordinator/outbox.h"
#include "membership/membership.h"
#include "proto/node_message.h"
#include "proto/world.h"

namespace regroup::membership {

// One transfer at a time. Pure: no timers, no I/O.
class StateTransfers {
 public:
  explicit StateTransfers(proto::Incarnation incarnation);

  // The coordinator's state during one call.
  struct Context {
    base::TimePoint now;
    const proto::World& world;
    MemberTable& members;
    const NodeTable& nodes;
    Policy policy;
    bool steady = false;  // no regroup is in progress
    Outbox& outbox;
  };
  // Each call may return why the coordinator must regroup: a learner in `world` cannot replay to
  // its state, so the next World copies it.
  using RegroupReason = std::optional<std::string>;
  // Begins a transfer if a member is to catch up, admits learners that have, ends a transfer
  // without learners.
  [[nodiscard]] RegroupReason poll(Context context);
  [[nodiscard]] RegroupReason on_source_status(const Context& context, proto::NodeId node,
                                               const proto::SourceStatus& status);
  [[nodiscard]] RegroupReason on_target_status(Context context, const proto::TargetStatus& status);
  [[nodiscard]] bool on() const { return transfer_.has_value(); }

 private:
  struct Transfer {
    proto::TransferId id = 0;
    proto::Generation generation = 0;  // of the World whose members write the snapshot
    proto::Step step = 0;              // of the snapshot; 0: the first source has not answered
    // Nodes that have not answered: the names of their hosts.
    std::map<proto::NodeId, std::string> asked;
    std::map<proto::NodeId, proto::SourceAgent> sources;  // nodes that serve the state
    std::map<proto::MemberId, bool> learners;             // whether each has caught up
    bool begun = false;                                   // the learners' agents have been started
  };
  [[nodiscard]] proto::TransferId next_id();
  void begin(const Context& context);
  void ask(const Context& context, proto::NodeId node);
  void ask_more_sources(const Context& context);
  void start_targets(Context context);
  [[nodiscard]] RegroupReason end(Context context, const std::string& why);

  std::optional<Transfer> transfer_;
  proto::TransferId last_;
  base::TimePoint next_{};  // not before this
};

}  // namespace regroup::membership
