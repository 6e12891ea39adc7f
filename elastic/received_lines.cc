// A line that has another owner now is another slot's, and its former slot has none until a line
// is said of it again.
#include "elastic/received_lines.h"

#include <utility>

namespace regroup::elastic {

void ReceivedLines::add(proto::DeviceLine line, base::Fd descriptor) {
  std::erase_if(lines_, [&](const auto& entry) { return entry.second.line.line == line.line; });
  const proto::SlotIndex slot = line.slot;
  if (line.line == 0) return void(lines_.erase(slot));
  lines_.insert_or_assign(slot, Line{std::move(line), std::move(descriptor)});
}

const ReceivedLines::Line* ReceivedLines::of(proto::SlotIndex slot) const {
  const auto found = lines_.find(slot);
  return found == lines_.end() ? nullptr : &found->second;
}

}  // namespace regroup::elastic
