// The device lines of a host: which member has which, and which may get another owner. A line is
// created once, stays with its owner, and is handed on after the owner's end. The agent's driver
// has the descriptors. docs/design/device_memory.md.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "membership/agent/agent_options.h"
#include "proto/message.h"

namespace regroup::membership {

// The line that a member with this declaration needs: `leaf_buffers` leaf buffers, and a slice as
// large as a leaf, since the members of one GPU let one of them add everything, and a World may
// shrink to that.
[[nodiscard]] proto::DeviceLine line_for(const proto::Join& join, std::uint32_t leaf_buffers);

// The message for a GPU that has not enough memory for `line`: "GPU 1: 2 leaf buffers of 5.2 GB and
// a slice of 5.2 GB wanted, 9.1 GB free; --device-memory 1 needs 10.4 GB".
[[nodiscard]] std::string not_enough(const proto::DeviceLine& line, std::uint32_t device,
                                     std::uint64_t free);

// Not thread-safe, never blocks.
class DeviceLines {
 public:
  // Tells of a member that had a line whether its line may get another owner: its process has ended
  // and its sums are not needed.
  using IsFree = std::function<bool(proto::MemberId)>;

  // Gives `id` a line like `wanted` whose owner needs it no more; false: there is none.
  [[nodiscard]] bool reuse(proto::MemberId id, const proto::DeviceLine& wanted,
                           const IsFree& is_free);
  // Forgets the lines on the same GPU as `wanted` whose owners need them no more; returns their
  // ids.
  [[nodiscard]] std::vector<proto::DeviceLineId> drop_free(const proto::DeviceLine& wanted,
                                                           const IsFree& is_free);
  // Adds the line `wanted` of `id`, which is to be created; returns it with its id.
  [[nodiscard]] proto::DeviceLine add(proto::MemberId id, proto::DeviceLine wanted);
  // The line has `bytes` bytes now. Returns its owner; empty: no such line is being created.
  [[nodiscard]] std::optional<proto::MemberId> created(proto::DeviceLineId line,
                                                       std::uint64_t bytes);
  // The line cannot be created, and is forgotten. Returns it with its owner.
  struct Lost {
    proto::DeviceLine line;
    proto::MemberId owner = 0;
  };
  [[nodiscard]] std::optional<Lost> failed(proto::DeviceLineId line);

  // `id` gets a slot, which no other line has from now on. Returns its line; null: it has none.
  const proto::DeviceLine* move_to(proto::MemberId id, proto::SlotIndex slot);
  // The arena is about to be replaced: no line has a slot.
  void drop_slots();
  [[nodiscard]] const proto::DeviceLine* of(proto::MemberId id) const;
  // The line in `slot`; null: there is none.
  [[nodiscard]] const proto::DeviceLine* in_slot(proto::SlotIndex slot) const;
  // All lines that are in a slot.
  [[nodiscard]] std::vector<proto::DeviceLine> in_slots() const;

 private:
  struct Entry {
    proto::DeviceLine line;
    proto::MemberId owner = 0;
    bool created = false;
  };
  std::map<proto::DeviceLineId, Entry> entries_;
  proto::DeviceLineId last_ = 0;
};

}  // namespace regroup::membership
