// An agent for tests of participants, controlled by the test: it assigns the slots of a real arena
// over a real socket and announces Worlds. A failed expectation fails the test.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/fd.h"
#include "proto/message.h"
#include "shmem/arena.h"

namespace regroup::elastic::testing {

class Agent {
 public:
  // Makes an arena in which member i has slot i.
  Agent(std::uint32_t members, std::uint64_t snapshot_bytes, std::uint64_t save_bytes = 0);
  explicit Agent(shmem::Arena arena);  // the caller assigns the arena's slots
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;
  ~Agent();

  [[nodiscard]] shmem::Arena& arena() { return arena_; }
  [[nodiscard]] shmem::MemberSlot& member_slot(proto::SlotIndex slot) const {
    return arena_.member_slot(slot);
  }
  [[nodiscard]] const std::string& path() const { return path_; }  // for REGROUP_AGENT
  [[nodiscard]] bool sleeps(proto::SlotIndex slot) const {
    return member_slot(slot).bell.sleeping.load() != 0;
  }

  // Accepts the connections of all members, or of the next one, and waits for their Ready.
  void welcome_all();
  void welcome();
  // Announces generation `g` with these members. All steps up to `resume` are committed. Leaf i of
  // the next step belongs to slot owners[i % owners.size()].
  void announce(proto::Generation g, const std::set<proto::SlotIndex>& donors,
                const std::set<proto::SlotIndex>& newcomers,
                const std::set<proto::SlotIndex>& learners = {},
                const std::vector<proto::SlotIndex>& owners = {0});
  // Closes all connections: a member that waits for a World gives up within about a second.
  void hang_up() { links_.clear(); }

  proto::Step resume = 1;

 private:
  void send_welcome(int fd, proto::SlotIndex slot);

  const std::string path_;
  shmem::Arena arena_;
  base::Fd listener_;
  std::vector<base::Fd> links_;
};

}  // namespace regroup::elastic::testing
