// The agent of one node as a state machine: it owns the arena, assigns its slots to members, closes
// their state words when a generation is revoked, and publishes Worlds.
// docs/design/architecture.md, 3 and 4. Not thread-safe (one thread of the node revokes), never
// blocks. The driver (launcher/job/elastic_agent.cc) performs the effects.
//
// Invariants, on which tests/model relies:
// - A generation that is revoked here is never open here again: on_revoke() closes every state word
//   before it emits the Report, and on_announce() refuses a World of that generation.
// - A slot is reassigned only once its owner is reaped and its sums are not needed (slot_use.h).
// - What a Report says about a learner stays true until the World formed from it: in a revoked
//   generation poll_transfer() publishes no result to learners.
// - A device line gets another owner under the rule of slots, and a member has the lines of all
//   slots of a World before that World is announced here.
// - After a Hello the agent repeats every fact that the coordinator may have missed.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "membership/agent/agent_effects.h"
#include "membership/agent/agent_options.h"
#include "membership/agent/declared_arena.h"
#include "membership/agent/device_lines.h"
#include "membership/agent/host_peer_addresses.h"
#include "membership/agent/local_members.h"
#include "membership/agent/node_transfer.h"
#include "membership/agent/slot_use.h"
#include "proto/message.h"
#include "shmem/arena.h"

namespace regroup::membership {

class AgentCore {
 public:
  explicit AgentCore(AgentOptions options);
  void set_endpoints(std::string endpoints) { transfer_.set_endpoints(std::move(endpoints)); }

  // Handles a message. From the coordinator: Start, Hello, Query, Revoke, Announce, PeerAddresses,
  // Notice, Kill, StartSource, StartTarget, EndTransfer, JobDone. From a member: Join, Ready,
  // PeerAddresses, PeerSuspect, CarrierLost, Diverged, Failure, Drained; the sender of a Join is
  // the member that it names. Messages of a lower incarnation of the coordinator than the highest
  // one seen are refused.
  [[nodiscard]] AgentEffects handle(AgentSender source, const proto::Message& message);

  // The kernel has released the robust mutex of `slot` (process::FutexWatcher reports it): its
  // member will store nothing to a result any more. May come before or after on_reaped().
  [[nodiscard]] AgentEffects on_owner_died(proto::SlotIndex slot);
  // The member was killed but hangs in the kernel: it stores nothing more, but keeps its slot until
  // it is reaped.
  [[nodiscard]] AgentEffects on_stuck(proto::MemberId member, const std::string& why);
  // The member's process has ended (exit_code 127: could not be started). Only now may its slot be
  // reassigned.
  [[nodiscard]] AgentEffects on_reaped(proto::MemberId member, std::int32_t pid,
                                       std::int32_t exit_code, std::int32_t signal);
  void release(proto::SlotIndex slot);
  void ring(proto::SlotIndex slot) { shmem::ring(arena().member_slot(slot).bell); }
  // A member has closed its connection. The agent kills it unless it has finished or was excluded,
  // since other members would wait for it.
  [[nodiscard]] AgentEffects on_link_closed(proto::MemberId member);

  // Answers to CreateDeviceLine: the line has `bytes` bytes now; or there is none, and why. `full`:
  // GPU `device` of this host has not enough memory left.
  [[nodiscard]] AgentEffects on_device_line(proto::DeviceLineId line, std::uint64_t bytes);
  [[nodiscard]] AgentEffects on_no_device_line(proto::DeviceLineId line, const std::string& why,
                                               bool full = false, std::uint32_t device = 0);

  // While transferring(), the driver calls poll_transfer() each millisecond, and again at once
  // while *more is true.
  [[nodiscard]] bool transferring() const { return transfer_.active(); }
  [[nodiscard]] AgentEffects poll_transfer(bool* more);
  // Source side: the data that may be sent; and what the reader `reader` on another node has
  // received (empty once it has disconnected).
  [[nodiscard]] const TransferSource& transfer_source() const { return transfer_.source(); }
  void on_reader_progress(std::uint64_t reader, std::optional<TransferTarget::Received> has) {
    transfer_.on_reader_progress(reader, has);
  }
  // Target side: true if the ring has room for the result of `step`; and what the fetch has
  // received.
  [[nodiscard]] bool room_for(proto::Step step) const { return transfer_.room_for(step, arena()); }
  void on_fetched(const TransferTarget::Received& received) { transfer_.on_fetched(received); }
  [[nodiscard]] AgentEffects on_fetch_failed(const std::string& why);

  // Unmapped before the first Join.
  [[nodiscard]] const shmem::Arena& arena() const { return arena_.arena(); }
  [[nodiscard]] proto::Incarnation incarnation() const { return incarnation_; }

 private:
  void on_coordinator(const proto::Body& body);
  void on_member(proto::MemberId id, const proto::Body& body);
  void on_join(const proto::Join& join);
  void on_carrier_lost(const proto::CarrierLost& lost);
  void on_failure(proto::MemberId id, const proto::Failure& failure);
  void on_ready(const proto::Ready& ready, proto::MemberId id, LocalMember* member);
  void on_hello();
  void on_revoke(proto::Generation g);
  void on_announce(const proto::Announce& announce);
  void on_peer_addresses(const proto::PeerAddresses& all);
  void on_notice(proto::MemberId id);
  void on_kill(const proto::Kill& kill);
  void on_start_target(const proto::StartTarget& order);

  void adopt(std::shared_ptr<const proto::World> world);
  void request_line(proto::MemberId id, const proto::Join& join);
  [[nodiscard]] bool line_is_free(proto::MemberId owner) const;
  void assign_slot(proto::MemberId id);
  void welcome(proto::MemberId id, proto::SlotIndex slot);
  [[nodiscard]] proto::Step committed() const;
  void refuse(proto::MemberId id, const std::string& reason,
              const char* kind = proto::kRefusedKind);
  void retry_joins();
  void mark_dead(proto::MemberId id);
  void send_peer_addresses();
  [[nodiscard]] bool awaits_world() const { return revoked_ > 0 && revoked_ >= world_->generation; }
  [[nodiscard]] std::vector<proto::SlotReport> report() const {
    return report_slots(arena(), transfer_, reads_gpu_sums(nullptr));
  }
  // Whether a living member here, of `world` unless it is null, can read sums of dead ones in
  // memory of a GPU.
  [[nodiscard]] bool reads_gpu_sums(const proto::World* world) const;
  template <class T>
  void emit(T effect) {
    effects_.emplace_back(std::move(effect));
  }
  void emit_all(AgentEffects effects);
  [[nodiscard]] AgentEffects take_effects();  // ends a call

  const AgentOptions options_;
  proto::Incarnation incarnation_ = 0;
  DeclaredArena arena_;
  LocalMembers members_;
  DeviceLines lines_;
  bool warned_of_no_line_ = false;
  std::deque<proto::MemberId> waiting_;  // members that wait for the slot of a dead member
  // The newest World announced here.
  std::shared_ptr<const proto::World> world_ = std::make_shared<const proto::World>();
  proto::Generation revoked_ = 0;     // highest generation revoked
  HostPeerAddresses peer_addresses_;  // of world_
  proto::CarrierLost carrier_lost_;   // the newest that a member of this host has told
  NodeTransfer transfer_;
  AgentEffects effects_;  // emitted by the call in progress
};

}  // namespace regroup::membership
