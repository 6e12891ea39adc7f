// The device lines that an agent has handed to a member, by slot.
#include "elastic/received_lines.h"

#include <gtest/gtest.h>

namespace regroup::elastic {
namespace {

proto::DeviceLine line_in(proto::DeviceLineId id, proto::SlotIndex slot) {
  proto::DeviceLine line;
  line.line = id;
  line.slot = slot;
  return line;
}

TEST(ReceivedLines, ALineThatMovesLeavesItsFormerSlotWithoutOne) {
  ReceivedLines lines;
  lines.add(line_in(1, 0), {});
  lines.add(line_in(2, 1), {});
  lines.add(line_in(1, 3), {});
  EXPECT_EQ(lines.of(0), nullptr);
  EXPECT_EQ(lines.of(1)->line.line, 2U);
  EXPECT_EQ(lines.of(3)->line.line, 1U);
}

TEST(ReceivedLines, ASlotThatGoesToAMemberWithoutALineHasNone) {
  ReceivedLines lines;
  lines.add(line_in(1, 0), {});
  lines.add(line_in(2, 1), {});
  lines.add(line_in(0, 1), {});
  EXPECT_NE(lines.of(0), nullptr);
  EXPECT_EQ(lines.of(1), nullptr);
  lines.add(line_in(2, 0), {});
  EXPECT_EQ(lines.of(0)->line.line, 2U);
}

}  // namespace
}  // namespace regroup::elastic
