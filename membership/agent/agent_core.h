// The agent of one node as a state machine: it owns the arena, assigns its slots to members, closes
// their state words when a generation is revoked, and publishes Worlds.
// docs/design/architecture.md, 3 and 4. Not thread-safe (one thread of the node revokes), never
// blocks. The driver performs the effects.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "membership/agent/agent_effects.h"
#include "membership/agent/agent_options.h"
#include "membership/agent/transfer_source.h"
#include "membership/agent/transfer_target.h"
#include "proto/message.h"
#include "shmem/arena.h"

namespace regroup::membership {

class AgentCore {
 public:
  explicit AgentCore(AgentOptions options);
  void set_endpoints(std::string endpoints) { options_.endpoints = std::move(endpoints); }

  // From the coordinator: Start, Hello, Query, Revoke, Announce, Contacts, Notice, Kill,
  // StartSource, StartTarget, EndTransfer, JobDone. From a member: Join, Ready, Contacts,
  // PeerSuspect, Diverged, Failure, Drained; the sender of a Join is the member that it names.
  // Messages of a lower incarnation of the coordinator than the highest one seen are refused.
  [[nodiscard]] AgentEffects handle(AgentSender source, const proto::Message& message);

  // The robust futex of `slot` fired: its member will store nothing to a result any more. May come
  // before or after on_reaped(); each counts once.
  [[nodiscard]] AgentEffects on_line_dead(proto::SlotIndex slot);
  // The member was killed and hangs in the kernel: it stores nothing more, but keeps its slot until
  // reaped.
  [[nodiscard]] AgentEffects on_stuck(proto::MemberId member, const std::string& why);
  // The process has ended (or could not be started: exit_code 127). Only now may its slot be
  // reassigned.
  [[nodiscard]] AgentEffects on_reaped(proto::MemberId member, std::int32_t pid,
                                       std::int32_t exit_code, std::int32_t signal);
  void release(proto::SlotIndex slot);
  void ring(proto::SlotIndex slot) { shmem::ring(arena_.member_slot(slot).bell); }
  // A member closed its connection. It is killed if it neither finished nor was excluded: others
  // wait for it.
  [[nodiscard]] AgentEffects on_link_closed(proto::MemberId member);

  // While a state transfer runs the driver calls poll_transfer() each millisecond, and at once
  // while *more.
  [[nodiscard]] bool transferring() const { return source_.active() || target_.active(); }
  [[nodiscard]] AgentEffects poll_transfer(bool* more);
  // Source side: what may be sent; and what a reader on another node has received, nothing once it
  // has gone.
  [[nodiscard]] const TransferSource& transfer_source() const { return source_; }
  void on_reader_progress(std::uint64_t reader, std::optional<TransferTarget::Received> has);
  // Target side: whether the ring has room for the result of `step`; what has been received.
  [[nodiscard]] bool room_for(proto::Step step) const;
  void on_fetched(const TransferTarget::Received& received) { fetched_ = received; }
  [[nodiscard]] AgentEffects on_fetch_failed(const std::string& why);

  [[nodiscard]] const shmem::Arena& arena() const { return arena_; }  // unmapped before a Join
  [[nodiscard]] proto::Incarnation incarnation() const { return incarnation_; }

 private:
  struct Local {  // a member on this node
    std::optional<proto::SlotIndex> slot;
    bool ready = false;
    bool drained = false;
    bool dead = false;  // marked so in its slot
    bool reaped = false;
    proto::Join join;
    proto::MemberLost loss;  // as last reported
  };

  void on_coordinator(const proto::Body& body);
  void on_member(proto::MemberId id, const proto::Body& body);
  void forget_dead_launch();
  void on_join(const proto::Join& join);
  void on_failure(proto::MemberId id, const proto::Failure& failure);
  void on_ready(proto::MemberId id);
  void on_hello();
  void on_revoke(proto::Generation g);
  void on_announce(const proto::Announce& announce);
  void on_contact(proto::MemberId id, const proto::Contacts& own);
  void send_contacts();
  void on_contacts(const proto::Contacts& all);
  void on_notice(proto::MemberId id);
  void on_kill(const proto::Kill& kill);
  void mark_dead(proto::MemberId id, Local* member);

  // agent_transfer.cc
  void on_start_source(const proto::StartSource& order);
  void on_start_target(const proto::StartTarget& order);
  void on_world_in_transfer(const proto::World& world);
  void end_transfer();
  void report_all(const std::vector<proto::TargetStatus>& news);
  void stop_fetch();
  AgentEffects effects();  // ends a call: returns its effects
  [[nodiscard]] proto::Step consumed() const;
  [[nodiscard]] bool snapshot_read() const;

  // agent_lines.cc
  enum class Use : std::uint8_t { kFree, kVoidable, kNeeded, kTaken };
  void give_line(proto::MemberId id);
  void refuse(proto::MemberId id, const std::string& reason,
              const char* kind = proto::kRefusedKind);
  void retry_joins();
  [[nodiscard]] Use use_of(proto::SlotIndex slot) const;
  [[nodiscard]] bool awaits_world() const { return revoked_ > 0 && revoked_ >= world_->generation; }
  [[nodiscard]] proto::Step committed_step() const;
  [[nodiscard]] bool plan_holds(const proto::World& world) const;
  [[nodiscard]] proto::SlotReport report_of(proto::SlotIndex slot) const;
  [[nodiscard]] std::vector<proto::SlotReport> report() const;
  template <class T>
  void emit(T effect) {
    effects_.emplace_back(std::move(effect));
  }

  AgentOptions options_;
  proto::Incarnation incarnation_ = 0;
  shmem::Arena arena_;
  std::optional<proto::Join> first_;  // first accepted one: fixes model, fingerprint and shape
  std::shared_ptr<const proto::World> world_ =
      std::make_shared<const proto::World>();  // newest announced
  proto::Generation revoked_ = 0;              // highest generation revoked
  proto::Contacts contacts_;                   // of the members here, in the generation of world_
  std::map<proto::MemberId, Local> members_;
  std::deque<proto::MemberId> waiting_;  // for a slot that a dead member still occupies
  TransferSource source_;
  TransferTarget target_;
  bool source_is_local_ =
      false;  // targets read what source_ writes; else fetched_ is what has been received
  bool fetching_ = false;
  TransferTarget::Received fetched_;
  proto::Step published_ = 0;  // of fetched_.kept
  std::map<std::uint64_t, TransferTarget::Received> readers_;
  AgentEffects effects_;  // of the call in progress
};

}  // namespace regroup::membership
