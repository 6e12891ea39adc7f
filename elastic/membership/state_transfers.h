// Newcomers learn while the others train: which nodes give, who learns, and when all have caught up. One
// state transfer at a time. docs/design/learners.md.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "core/clock.h"
#include "core/node_message.h"
#include "core/world.h"
#include "elastic/membership/coordinator_effects.h"
#include "elastic/membership/member_table.h"
#include "elastic/membership/membership.h"
#include "elastic/membership/node_table.h"

namespace regroup::membership {

// The coordinator's part of it, without timers of its own.
class StateTransfers {
 public:
  explicit StateTransfers(core::Incarnation incarnation);

  // What the coordinator knows at the moment of a call.
  struct Context {
    core::TimePoint now;
    const core::World& world;
    MemberTable& members;
    const NodeTable& nodes;
    const Policy& policy;
    bool steady = false;  // no round is open
    Effects& effects;
    std::function<void(const std::string&)> remember;  // for `regroup status`
  };
  // Each returns why a round is needed: a learner in `world` cannot come to its state and gets a copy.
  using RegroupReason = std::optional<std::string>;
  // Begins a state transfer if somebody is to learn; lets in those who have caught up; ends what nobody
  // needs.
  [[nodiscard]] RegroupReason poll(Context context);
  [[nodiscard]] RegroupReason on_source_status(const Context& context, core::NodeId node,
                                               const core::SourceStatus& status);
  [[nodiscard]] RegroupReason on_target_status(Context context, const core::TargetStatus& status);
  [[nodiscard]] bool on() const { return transfer_.has_value(); }

 private:
  struct Transfer {
    core::TransferId id = 0;
    core::Generation generation = 0;                    // of the World whose members write
    core::Step step = 0;                                // 0: the first source has not said it yet
    std::map<core::NodeId, std::string> asked;          // and not answered: the names of their hosts
    std::map<core::NodeId, core::SourceAgent> sources;  // those that give
    std::map<core::MemberId, bool> learners;            // whether they have caught up
    bool begun = false;                                 // the learners are told
  };
  [[nodiscard]] core::TransferId next_id();
  void begin(const Context& context);
  void ask(const Context& context, core::NodeId node);
  void ask_more_sources(const Context& context);
  void start_targets(Context context);
  [[nodiscard]] RegroupReason end(Context context, const std::string& why);

  std::optional<Transfer> transfer_;
  core::TransferId last_;
  core::TimePoint next_{};
};

}  // namespace regroup::membership
