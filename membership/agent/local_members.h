// The members of one node as its agent knows them: each member's life, from its start until after
// its end, and the report of its loss.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "proto/message.h"
#include "shmem/arena.h"

namespace regroup::membership {

struct LocalMember {
  enum class Life : std::uint8_t {  // only increases
    kStarted,                       // it may have a slot, but has not claimed it
    kReady,                         // it has claimed its slot
    kDead,                          // it stores nothing to a result any more, and its slot says so
    kReaped,                        // its process has ended; only now may its slot be reassigned
  };
  std::optional<proto::SlotIndex> slot;
  Life life = Life::kStarted;
  bool drained = false;        // it has applied everything and opens no further step
  bool awaits_line = false;    // its slot comes when its device line is there
  std::string no_device_line;  // why it has none, for its Welcome
  proto::Join join;
  std::optional<proto::PlaneFacts> planes = {};    // of its Ready
  std::optional<proto::DeviceHealth> health = {};  // of its Ready
  proto::MemberLost loss;  // as last reported; before a loss: only its failure

  [[nodiscard]] bool is_ready() const { return life == Life::kReady; }
  [[nodiscard]] bool is_dead() const { return life >= Life::kDead; }
  [[nodiscard]] bool is_reaped() const { return life == Life::kReaped; }
};

// A table of local members by id. A member stays in it after its end, since a restarted coordinator
// asks for its loss. Not thread-safe, never blocks.
class LocalMembers {
 public:
  // Adds a member that is about to be started. Does nothing if the table has it.
  void add(proto::MemberId id) { (void)members_.try_emplace(id); }
  // Null if not in the table. Valid as long as the table.
  [[nodiscard]] LocalMember* find(proto::MemberId id);
  [[nodiscard]] const LocalMember* find(proto::MemberId id) const;
  [[nodiscard]] const std::map<proto::MemberId, LocalMember>& all() const { return members_; }

  // Marks `id` dead: fills its loss from its slot in `arena`, marks the slot, and wakes the other
  // members, which need not wait for it any more. False: it was dead already.
  [[nodiscard]] bool mark_dead(proto::MemberId id, const shmem::Arena& arena);
  // Records that the process of `id` has ended, or could not be started; calls mark_dead(). Returns
  // the member with its exit status in its loss (but not yet the cause); null: it was reaped
  // before.
  [[nodiscard]] LocalMember* mark_reaped(proto::MemberId id, std::int32_t exit_code,
                                         std::int32_t signal, const shmem::Arena& arena);

  // True if no process here has a slot, or will get one: each is reaped or was refused.
  [[nodiscard]] bool none_holds_a_slot() const;
  // Forgets all slots; for an arena that is about to be replaced.
  void drop_slots();

 private:
  std::map<proto::MemberId, LocalMember> members_;
};

}  // namespace regroup::membership
