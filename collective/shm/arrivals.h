// The chain of rendezvous of one communicator's members: everything that waits. Each member counts its
// arrivals in its own line of the arena; nobody passes rendezvous k before all have arrived at it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/arena.h"
#include "core/clock.h"
#include "core/status.h"
#include "core/world.h"

namespace regroup::collective {

// Owned and used by one thread. Every failure is final: the members may have arrived at different numbers.
class Arrivals {
 public:
  // Of the member `slots[self]`. Touches nothing. `arena` outlives it.
  Arrivals(const core::Arena& arena, core::Generation generation, core::ChannelKind channel,
           core::Position instance, std::vector<core::SlotIndex> slots, int self);

  // What went wrong so far: a failure of before, or kRevoked if the generation is over.
  [[nodiscard]] core::Status check();
  // Returns when every member of an earlier generation on this host has left it. Blocks once at most. Before
  // it nothing shared may be written. `operation` is named in errors here and below.
  [[nodiscard]] core::Status gate(std::string_view operation, core::TimePoint deadline);
  // Publishes what this thread has stored, arrives, and returns when all have arrived: then their stores from
  // before are visible. kRevoked at once when the generation is over; kDeadlineExceeded names who is missing.
  [[nodiscard]] core::Status meet(std::string_view operation, core::TimePoint deadline);

  // Number of rendezvous passed; the same in all members while they run the same code.
  [[nodiscard]] std::uint64_t met() const { return met_; }

 private:
  [[nodiscard]] core::Channel& channel_of(std::size_t member) const;
  [[nodiscard]] core::Status open();
  void ring_others() const;
  [[nodiscard]] bool has_arrived(std::size_t member);
  [[nodiscard]] bool all_have_arrived();
  [[nodiscard]] bool is_over();
  // Sleeps until `ready()` or the generation is over; `missing()` words who was waited for.
  template <class Ready, class Missing>
  [[nodiscard]] core::Status wait(std::string_view operation, core::TimePoint deadline, Ready ready,
                                  Missing missing);
  [[nodiscard]] std::string list_missing();
  [[nodiscard]] std::string list_not_left() const;

  const core::Arena& arena_;
  const core::Generation generation_;
  const core::ChannelKind channel_;
  const std::uint64_t instance_;
  const std::vector<core::SlotIndex> slots_;  // by rank
  const std::size_t self_;

  core::Status failed_;
  bool opened_ = false;
  bool gate_passed_ = false;
  bool over_ = false;
  std::uint64_t met_ = 0;
  std::uint64_t target_ = 0;    // the rendezvous at hand
  std::size_t first_late_ = 0;  // all before this rank have arrived at it
};

}  // namespace regroup::collective
