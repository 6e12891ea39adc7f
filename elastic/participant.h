// This process as a member of the job: its slot in the arena, its generation, and the transitions
// of sections 3 and 4 of docs/design/architecture.md: join, open, commit, leave. All calls come
// from the training thread, which holds the slot's robust futex.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "elastic/agent_link.h"
#include "elastic/fixed_world.h"
#include "elastic/options.h"
#include "elastic/received_lines.h"
#include "elastic/term_notice.h"
#include "proto/message.h"
#include "proto/world.h"
#include "shmem/arena.h"

namespace regroup::elastic {

class Participant {
 public:
  // The number of shards of the job that connect() would join. kUnavailable: only the agent knows.
  [[nodiscard]] static base::Result<std::uint32_t> expected_shards(const Environment& env);
  // Joins through the agent of `env`, or through a rank of the launch that this process belongs to,
  // or makes a World of one. Returns once the slot is claimed, before any World. `use_line`: called
  // with this member's device line if plane cuda may use it, before the agent knows; an error says
  // why it cannot.
  using UseLine = std::function<base::Status(const ReceivedLines::Line& line)>;
  [[nodiscard]] static base::Result<std::unique_ptr<Participant>> connect(
      const Environment& env, proto::Join declaration, proto::Ready ready, base::Duration timeout,
      const UseLine& use_line = {});

  [[nodiscard]] shmem::Arena& arena() { return arena_; }
  [[nodiscard]] shmem::MemberSlot& own_slot() { return arena_.member_slot(slot_); }
  [[nodiscard]] proto::SlotId slot_id() const { return {arena_.spec().node, slot_}; }
  // Generation 0 before the first World.
  [[nodiscard]] const proto::World& world() const { return world_; }
  [[nodiscard]] int rank() const { return world_.rank_of(slot_id()); }
  [[nodiscard]] const proto::WorldMember& own_member() const {
    return world_.members[static_cast<std::size_t>(rank())];
  }
  [[nodiscard]] std::uint64_t seed() const { return seed_; }
  [[nodiscard]] std::uint32_t shards() const { return arena_.spec().shards; }
  [[nodiscard]] bool revoked() const;

  // The device lines of the members of this host. Those of all slots of a World are there when this
  // member has joined it, if the agent has given lines to all its members.
  [[nodiscard]] const ReceivedLines& device_lines();
  // Why this member has no device line; "": it has one, or has asked for none.
  [[nodiscard]] const std::string& no_device_line() const { return no_device_line_; }
  // Why this member has declared that it cannot use plane cuda; "": it can.
  [[nodiscard]] const std::string& why_not_cuda() const { return why_not_cuda_; }

  // Sleeps until `ready()`. kRevoked: the generation is over; kLeft: this member was excluded (the
  // message has the reason); kDeadlineExceeded: `what` took longer than the timeout; kPeerLost: the
  // agent has died.
  [[nodiscard]] base::Status wait(const std::function<bool()>& ready, const std::string& what);
  // As wait(), but a revoke or an exclusion does not end it. False: the deadline has passed, or the
  // agent has died.
  [[nodiscard]] bool pause(const std::function<bool()>& ready, base::TimePoint deadline);
  // Installs a hook: while this member waits, in wait() or for a World, it calls `answer()`
  // whenever `asked()` becomes true. `asked()` must be fast, and false after `answer()`.
  void while_waiting(std::function<bool()> asked, std::function<void()> answer);

  enum class Joined {
    kInWorld,  // the member is in the newest World, which resumes at its position
    // The transaction that was open here is committed: apply it, then call regroup() again.
    kOpenIsCommitted,
  };
  // Leaves the present generation and waits for the next World. kLeft: this member was excluded.
  [[nodiscard]] base::Result<Joined> regroup();
  // As regroup(), but returns empty once `other()` is true. For a member that is in no World yet.
  [[nodiscard]] base::Result<std::optional<Joined>> regroup_or(const std::function<bool()>& other);

  // committed -> open(next). kRevoked: regroup first.
  [[nodiscard]] base::Status open(proto::Position next);
  // open -> committed, once all have voted. kRevoked: regroup(), which returns whether it was
  // committed.
  [[nodiscard]] base::Status commit();

  [[nodiscard]] bool asked_to_leave() {
    return own_slot().leave_request.load(std::memory_order_acquire) != shmem::kStay;
  }
  // Declares that this thread touches no buffer of any generation any more, so that no member waits
  // for it.
  void leave_all_generations();
  // Publishes this member's address in its generation; looks up another's (empty while unknown).
  // Addresses are opaque. Neither call blocks; the agent rings the doorbell when addresses arrive.
  [[nodiscard]] base::Status publish_address(std::span<const std::byte> address);
  [[nodiscard]] std::optional<std::vector<std::byte>> address_of(proto::MemberId member);
  // Reports to the agent that another member does not respond.
  // Tells why the generation goes on without the carriers of plane mpi.
  void tell_carrier_lost(proto::Generation generation, const std::string& why);
  void suspect(proto::MemberId member, const std::string& why);
  // Reports that members hold different states, and waits some seconds for the end of the job. Rank
  // 0 reports at once, the others only if rank 0 could not.
  void end_diverged(const std::string& why);

  // Tells the agent that everything is applied and no further step will be opened.
  [[nodiscard]] base::Status announce_drained();
  // This member is leaving, as SIGTERM asked: further SIGTERMs are ignored.
  void set_leaving(bool leaving) { term_notice_.set_leaving(leaving); }

 private:
  // `takes_notice`: handle SIGTERM as a notice; else the program's own handling stays.
  Participant(shmem::Arena arena, proto::SlotIndex slot, std::uint64_t seed, AgentLink link,
              base::Duration timeout, bool takes_notice);

  [[nodiscard]] static base::Result<std::unique_ptr<Participant>> alone(const Environment& env,
                                                                        const proto::Join& join,
                                                                        base::Duration timeout,
                                                                        const std::string& why);
  [[nodiscard]] static base::Result<std::unique_ptr<Participant>> through(
      AgentLink link, proto::Join declaration, proto::Ready ready, base::Duration timeout,
      const UseLine& use_line, bool takes_notice);
  // Tries to enter `world`; empty: it was revoked meanwhile.
  [[nodiscard]] base::Result<std::optional<Joined>> join(proto::World world);
  [[nodiscard]] bool newer_world();
  [[nodiscard]] base::Status await_newer_world(const std::function<bool()>& other);
  // Handles the agent's messages. kLeft, with the reason, once this member was excluded; kPeerLost.
  [[nodiscard]] base::Status handle_agent_messages();
  void add_peer_addresses(proto::PeerAddresses addresses);
  [[nodiscard]] static base::Result<ReceivedLines> receive_lines(AgentLink* link,
                                                                 std::uint32_t count,
                                                                 base::TimePoint deadline);
  [[nodiscard]] base::Status excluded();
  // Sets the state word of a member without state to {committed up to the resume position of
  // `world`, revoked}, from which it can join.
  [[nodiscard]] bool enter_as_joining_member(const proto::World& world);
  [[nodiscard]] proto::StateWord state() {
    return shmem::load_state<shmem::RealPolicy>(own_slot().state);
  }

  std::unique_ptr<FixedWorldServer> server_;        // in the rank that serves a World of fixed size
  std::unique_ptr<SingleWorldGuard> single_world_;  // in every rank of one
  shmem::Arena arena_;
  const proto::SlotIndex slot_;
  const std::uint64_t seed_;
  const base::Duration timeout_;
  AgentLink link_;
  ReceivedLines device_lines_;
  std::string no_device_line_;
  std::string why_not_cuda_;
  TermNotice term_notice_;
  std::function<bool()> asked_ = [] { return false; };
  std::function<void()> answer_;
  proto::World world_;
  proto::Generation peer_addresses_generation_ = 0;  // generation of peer_addresses_
  std::map<proto::MemberId, std::vector<std::byte>> peer_addresses_;
  base::Status exclusion_;      // not OK once the agent has excluded this member
  proto::Generation seen_ = 0;  // newest World without this member
};

}  // namespace regroup::elastic
