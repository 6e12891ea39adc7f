// The device lines of this host as its agent has handed them to this member: what lies where, and
// the descriptors of the memory. docs/design/device_memory.md.
#pragma once

#include <map>

#include "base/fd.h"
#include "proto/device_line.h"

namespace regroup::elastic {

// Training thread only.
class ReceivedLines {
 public:
  struct Line {
    proto::DeviceLine line;
    base::Fd descriptor;  // of its memory, which any process may map
  };

  // The line replaces the one that the slot had, and leaves the slot in which it was before. Line
  // 0: the slot has none.
  void add(proto::DeviceLine line, base::Fd descriptor);
  // The line of the member in `slot`; null: it has none. Valid until the next add().
  [[nodiscard]] const Line* of(proto::SlotIndex slot) const;

 private:
  std::map<proto::SlotIndex, Line> lines_;
};

}  // namespace regroup::elastic
