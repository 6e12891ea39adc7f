// The members of one node, as its agent knows them: how far each has come, from its start until
// after its end, and what is reported of its loss.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "proto/message.h"
#include "shmem/arena.h"

namespace regroup::membership {

struct LocalMember {
  enum class Life : std::uint8_t {  // a member goes down this list, and never up
    kStarted,                       // perhaps with a slot, but not claimed yet
    kReady,                         // it holds its slot
    kDead,    // stores nothing to a result any more, and is marked so in its slot
    kReaped,  // its process has ended; only now may its slot be reassigned
  };
  std::optional<proto::SlotIndex> slot;
  Life life = Life::kStarted;
  bool drained = false;  // it has applied everything and opens no further step
  proto::Join join;
  proto::MemberLost loss;  // as last reported; before a loss: only its failure

  [[nodiscard]] bool is_ready() const { return life == Life::kReady; }
  [[nodiscard]] bool is_dead() const { return life >= Life::kDead; }
  [[nodiscard]] bool is_reaped() const { return life == Life::kReaped; }
};

// A table of them, by member id. A member stays in it after its end: a restarted coordinator asks
// for its loss. Not thread-safe, never blocks.
class LocalMembers {
 public:
  // A member is about to be started. Does nothing if it is known.
  void add(proto::MemberId id) { (void)members_.try_emplace(id); }
  // Null: not known. Valid as long as the table.
  [[nodiscard]] LocalMember* find(proto::MemberId id);
  [[nodiscard]] const LocalMember* find(proto::MemberId id) const;
  [[nodiscard]] const std::map<proto::MemberId, LocalMember>& all() const { return members_; }

  // `id` is dead: fills its loss from its slot in `arena`, marks the slot, and wakes the others,
  // since none needs to wait for it any more. False: it was dead.
  [[nodiscard]] bool mark_dead(proto::MemberId id, const shmem::Arena& arena);
  // Its process has ended, or could not be started. Marks it dead, as above, if it was not. Null:
  // it was reaped before, or else the member, with its exit status, the cause of its loss not yet.
  [[nodiscard]] LocalMember* mark_reaped(proto::MemberId id, std::int32_t exit_code,
                                         std::int32_t signal, const shmem::Arena& arena);

  // True if no process here has a slot: each is reaped or never got one.
  [[nodiscard]] bool none_holds_a_slot() const;
  // Their arena is about to be replaced.
  void drop_slots();

 private:
  std::map<proto::MemberId, LocalMember> members_;
};

}  // namespace regroup::membership
