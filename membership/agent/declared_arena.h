// The arena of a node, and the declaration of the member that fixed its shape.
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "membership/agent/agent_options.h"
#include "proto/message.h"
#include "shmem/arena.h"

namespace regroup::membership {

// The first member that joins declares model, sizes and numeric fingerprint, which determine the
// arena; every later member must declare the same. Not thread-safe. Blocks only to reserve memory.
class DeclaredArena {
 public:
  struct Admitted {
    std::string warning;  // for the user; "": none
  };
  struct Refused {
    std::string reason;
    const char* kind = "";  // proto::Failure::kind of the member
  };

  // Decides whether a member that declares `join` may have a slot. The first such call creates the
  // arena, with a ring of results for learners if memory permits.
  [[nodiscard]] std::variant<Admitted, Refused> admit(const proto::Join& join,
                                                      const AgentOptions& options);
  // Lets the next member declare anew and get a new arena. No process may still use the present
  // one.
  void forget_declaration() { declaration_.reset(); }

  [[nodiscard]] const std::optional<proto::Join>& declaration() const { return declaration_; }
  // Unmapped before the first member is admitted.
  [[nodiscard]] shmem::Arena& arena() { return arena_; }
  [[nodiscard]] const shmem::Arena& arena() const { return arena_; }

 private:
  shmem::Arena arena_;
  std::optional<proto::Join> declaration_;
};

}  // namespace regroup::membership
