// The audit of a step: a second member computes one leaf of it, too, and where the bits differ a
// third one does. It finds hardware that computes wrong numbers: docs/design/audit.md. All members
// of a World decide alike, from data that all of them have.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "proto/world.h"
#include "regroup/communicator.h"

namespace regroup::elastic {

struct AuditPlan {
  std::uint32_t leaf = 0;
  int owner = 0, second = 0;  // ranks
  int third = -1;             // -1: only two members take part
};

// What is audited in `step`, one of every `every` (0: none); drawn from `seed` and `step`. Nothing
// in the first step of a World, whose leaves may be those of the World before, nor if fewer than
// two members take part.
[[nodiscard]] std::optional<AuditPlan> plan_audit(const proto::World& world, proto::Step step,
                                                  proto::Step every, std::uint64_t seed);

// The audit of the open step, at most one. Training thread only.
class Audit {
 public:
  // `rank` is that of this member.
  void begin(std::optional<AuditPlan> plan, proto::Step step, int rank);
  // Of a World that is over: no member of the next one continues it. Returns a sentence for the
  // user, in the owner of the leaf only, if bits differed and no third member had decided.
  [[nodiscard]] std::string drop(const proto::World& world);
  [[nodiscard]] bool active() const { return plan_.has_value(); }
  // The leaf that this member has yet to compute as the second or third one.
  [[nodiscard]] std::optional<std::uint32_t> leaf_to_compute() const;
  // True if this member's bits of `leaf` are compared: give them to take().
  [[nodiscard]] bool compares(std::uint32_t leaf) const;
  void take(std::span<const std::byte> gradient);

  struct Finding {
    // A sentence, if members have computed different bits and a third one has not yet to decide.
    std::string difference;
    bool own_fault = false;  // two others agree, and this member does not
    bool undecided = false;  // no two agree, or only two took part
  };
  // Compares the digests of all that have computed the leaf. Collective; afterwards active() is
  // true on all ranks if the third one must compute the leaf, and false otherwise. Errors are those
  // of the communicator.
  [[nodiscard]] base::Result<Finding> compare(collective::Communicator& communicator,
                                              const proto::World& world, base::TimePoint deadline);

 private:
  std::optional<AuditPlan> plan_;
  proto::Step step_ = 0;
  int rank_ = 0;
  bool third_asked_ = false;
  std::optional<std::uint32_t> digest_;  // of this member's bits
};

}  // namespace regroup::elastic
