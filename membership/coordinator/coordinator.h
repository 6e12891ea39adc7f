// The coordinator of an elastic job as a state machine: messages and time in, effects out, which
// the driver (launcher/job/elastic_coordinator.cc, elastic/fixed_world_server.cc) performs in
// order. docs/design/architecture.md sections 2 and 4; its parts: docs/design/coordinator.md. Not
// thread-safe, never blocks.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "membership/choose_plane.h"
#include "membership/coordinator/agent_facts.h"
#include "membership/coordinator/coordinator_effects.h"
#include "membership/coordinator/host_suspicions.h"
#include "membership/coordinator/job_size.h"
#include "membership/coordinator/journal_entry.h"
#include "membership/coordinator/last_decision.h"
#include "membership/coordinator/launch_until_join.h"
#include "membership/coordinator/limits.h"
#include "membership/coordinator/member_table.h"
#include "membership/coordinator/node_table.h"
#include "membership/coordinator/outbox.h"
#include "membership/coordinator/peer_address_exchange.h"
#include "membership/coordinator/progress_meter.h"
#include "membership/coordinator/progress_watch.h"
#include "membership/coordinator/recovery.h"
#include "membership/coordinator/refused_devices.h"
#include "membership/coordinator/report_round.h"
#include "membership/coordinator/requests.h"
#include "membership/coordinator/restart_budget.h"
#include "membership/coordinator/starts.h"
#include "membership/coordinator/state_transfers.h"
#include "membership/membership.h"
#include "proto/message.h"
#include "proto/world.h"

namespace regroup::membership {

class Coordinator {
 public:
  // `past`: the journal. With a World in it, or an incarnation above 1, members may be running: the
  // coordinator first sends Hello to all agents. Incarnations begin at 1 and grow at each restart.
  Coordinator(Policy policy, JobInfo job, proto::Incarnation incarnation, JournaledState past = {});

  // From agents: facts about members, Report, HelloReply, SourceStatus, TargetStatus. From the
  // driver, which closes the link of a node that is sent a NodeLost: NodeUp, NodeSilent, NodeLost,
  // NodesKnown.
  [[nodiscard]] Effects handle(base::TimePoint now, Sender source, const proto::Message& message);
  [[nodiscard]] Effects tick(base::TimePoint now);  // first, and after each next_deadline()
  // When to call tick() next, at most a second ahead; nothing once the job is done.
  [[nodiscard]] std::optional<base::TimePoint> next_deadline() const;
  [[nodiscard]] std::string status_json(base::TimePoint now) const;
  // What agents have reported; they are asked each second. nullopt before World 1 and, after a
  // restart of the coordinator, before they have answered. Without a speed while no World can be
  // formed.
  [[nodiscard]] std::optional<TrainingProgress> progress(base::TimePoint now) const;

  [[nodiscard]] const proto::World& world() const { return world_; }  // generation 0: none yet
  [[nodiscard]] bool done() const { return stage_ == Stage::kDone; }

 private:
  enum class Stage : std::uint8_t {
    kNodes,        // waits until the nodes of the job are known
    kHello,        // restarted: waits for the agents' answers to Hello
    kStarting,     // no World yet: waits for the first members
    kRelaunching,  // all members are lost: waits until the job may be launched again
    kSteady,       // a World trains
    kRegrouping,   // the World is revoked: waits for reports, then forms the next one
    kDone
  };

  // Messages and requests: coordinator.cc.
  void on_agent(proto::NodeId node, const proto::Message& message);
  void on_ready(proto::NodeId node, const proto::MemberReady& ready);
  void on_first_ready();
  void on_drained(proto::NodeId node, const proto::MemberDrained& drained);
  void on_report(proto::NodeId node, const proto::Report& report);
  void on_hello_reply(proto::NodeId node, const proto::HelloReply& reply);
  MemberInfo& recover(proto::MemberId id, proto::NodeId node, bool alive);
  void take_reports(proto::NodeId node, const std::vector<proto::SlotReport>& slots);
  void observe_step(proto::Step applied);  // by any member, so it is committed
  void settle_drained(MemberInfo* member);
  [[nodiscard]] proto::Body answer(const proto::Body& request);
  [[nodiscard]] proto::Reply resize(std::uint32_t members);
  [[nodiscard]] proto::Reply notice(proto::MemberId id);
  [[nodiscard]] proto::Reply kill(proto::MemberId id);
  void kill_member(MemberInfo* member, EndedBy by, const std::string& cause);
  [[nodiscard]] RequestTerms request_terms() const;
  // The journal.
  void restore(const JournaledState& past);
  [[nodiscard]] Intent intent() const;
  void journal_intent() { journal(intent()); }
  void journal(Intent intent);
  // The call in progress.
  void pass_to(base::TimePoint now);
  [[nodiscard]] Effects finish_call();
  [[nodiscard]] CoordinatorView known() const {
    return {members_, world_, highest_, !job_.driver_reports_nodes()};
  }
  [[nodiscard]] Policy policy_now() const;
  [[nodiscard]] std::uint32_t least() const;

  // Nodes: coordinator_nodes.cc.
  [[nodiscard]] bool on_nodes(const proto::Body& body);
  void change_node(const proto::NodeUp& up);
  void add_node(const proto::NodeUp& up);
  void leave_node(proto::NodeId node);
  void grow(std::uint32_t leased = 0);
  void count_slots();
  void on_nodes_known(const proto::NodesKnown& known);
  void end_without_room();
  void lose_node(proto::NodeId node, const std::string& why);
  void lose_with_node(MemberInfo* member);
  void drop_node(proto::NodeId node, const std::string& why);
  void drop_suspected_nodes();
  void drop_unresponsive_nodes();
  void on_peer_suspect(proto::NodeId node, const proto::PeerSuspect& suspect);
  void on_peer_addresses(proto::NodeId node, const proto::PeerAddresses& addresses);
  [[nodiscard]] bool accept_declaration(MemberInfo* member, const proto::Join& join);

  // Data planes: coordinator_planes.cc.
  [[nodiscard]] PlaneMember plane_member(const MemberInfo& member, proto::NodeId node) const;
  [[nodiscard]] PlaneVerdict plane_of(const std::vector<proto::MemberId>& next) const;
  [[nodiscard]] std::string plane_refusal(const MemberInfo& member, proto::NodeId node) const;
  [[nodiscard]] bool accept_planes(MemberInfo* member, proto::NodeId node,
                                   const std::optional<proto::PlaneFacts>& planes);
  void recover_planes(proto::NodeId node, const std::vector<proto::MemberPlanes>& all);
  [[nodiscard]] bool sets_memory(proto::MemberId id) const;
  void on_carrier_lost(proto::NodeId node, const proto::CarrierLost& lost);
  // False: all of `next` are members of the World.
  [[nodiscard]] bool refuse_newcomers(const std::vector<proto::MemberId>& next,
                                      const std::string& why);

  // GPUs: coordinator_health.cc.
  [[nodiscard]] bool accept_device(MemberInfo* member, proto::NodeId node,
                                   const std::optional<proto::DeviceHealth>& health);
  void refuse_device(MemberInfo* member, proto::NodeId node, const proto::DeviceHealth& health,
                     const std::string& why);
  void lose_device_slot(proto::NodeId node, RefusedDevice* device, const MemberInfo& refused);
  void forget_refused_devices();
  void hold_nodes();

  // Losses: coordinator_losses.cc.
  void on_lost(proto::NodeId node, const proto::MemberLost& lost);
  void lose_unseen(MemberInfo* member);
  void lose_unready(MemberInfo* member);
  void lose_ready(MemberInfo* member);
  void not_replaced(const MemberInfo& lost);  // makes the job smaller unless it is replaced
  void charge(MemberInfo* member);            // counts a failure against its slot
  void forget_failures();
  void lost_of_launch(const MemberInfo& member, const std::string& what, bool news);

  // Processes and limits: coordinator_start.cc.
  void start_members();
  void start_one(const MemberStart& start);
  void update_loads();
  void launch();
  void relaunch();
  void dismiss_launch();
  void enforce_limits();
  [[nodiscard]] Limits::Circumstances limited() const;
  void end_unready(MemberInfo* member);
  void watch_progress();
  void shrink();
  void ask_to_leave(MemberInfo* member);
  void dismiss(MemberInfo* member, bool gently, const std::string& reason);
  void refuse_member(MemberInfo* member, const std::string& reason);

  // From one World to the next, and the end: coordinator_regroup.cc.
  void advance();
  void end_hello();
  void end_hello_before_world_1();
  void decide_next();
  void tell_held(const std::string& why);
  void make_room();
  void start_regroup(const std::string& why);
  [[nodiscard]] StateTransfers::Context transfer_context();
  void regroup_to_copy(const StateTransfers::RegroupReason& why);
  void form_world(const std::vector<proto::MemberId>& next, const std::string& why);
  void enter(const proto::World& world);
  void end_if_over();
  void end_on_notice(const std::string& sentence);
  void end(std::int32_t exit_code, const std::string& reason,
           StateLeft left = StateLeft::kWithMembers);
  void tell_end(std::int32_t exit_code, const std::string& reason, StateLeft left);
  void fail(const std::string& what, StateLeft left = StateLeft::kWithMembers);

  // Constant, but for what a checkpoint says of shards and the step to resume from. The target and
  // the slots are size_'s.
  Policy policy_;
  const JobInfo job_;
  const proto::Incarnation incarnation_;

  Stage stage_;
  proto::World world_;             // newest formed (or journaled); generation 0 before World 1
  proto::Generation highest_ = 0;  // that any agent knows
  std::string carrier_lost_;       // why another plane serves in place of its own
  Recovery recovery_;              // in kHello
  bool losses_due_ = false;        // the journal lacks lost members

  // Time.
  bool begun_ = false;                // tick() was called
  base::TimePoint now_{};             // of the call in progress
  base::TimePoint began_{};           // of the job, by any incarnation
  base::Duration awake_{};            // in which this process was not stopped
  base::TimePoint progress_since_{};  // when a World began that resumes later than the one before

  // Members.
  MemberTable members_;
  JobSize size_;
  LaunchUntilJoin launch_;
  RestartBudget budget_;
  std::uint64_t ready_count_ = 0;
  std::optional<proto::Join> declared_;  // by the first member
  // The first member that has said where its gradients are.
  std::optional<proto::MemberId> first_with_planes_;

  RefusedDevices refused_devices_;
  // Members whose process may still hold a refused GPU, and until when its node starts no others.
  std::map<proto::MemberId, base::TimePoint> ending_refused_;

  // Nodes.
  NodeTable nodes_;
  HostSuspicions suspicions_;
  PeerAddressExchange peer_addresses_;

  // The World in progress, and the next one.
  ReportRound round_;  // of Hello, or of a regroup
  StateTransfers transfers_;
  ProgressWatch watch_;
  ProgressMeter meter_;
  Limits limits_;
  std::string held_;        // why no World is formed, for status
  bool held_said_ = false;  // in this regroup
  LastDecision decision_;

  Outbox outbox_;
};

}  // namespace regroup::membership
