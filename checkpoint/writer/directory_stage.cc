// One row for each change of a local directory's stage.
#include "checkpoint/writer/directory_stage.h"

#include <algorithm>
#include <iterator>

namespace regroup::writer {
namespace {

using Stage = DirectoryStage;
using Event = DirectoryEvent;

struct Edge {
  Stage from;
  Event event;
  Stage to;
};

constexpr Edge kEdges[] = {
    {Stage::kOpen, Event::kStarted, Stage::kLocking},
    {Stage::kLocking, Event::kDelayed, Stage::kLate},
    {Stage::kLocking, Event::kLocked, Stage::kHeld},
    {Stage::kLocking, Event::kEnded, Stage::kOpen},
    {Stage::kLocking, Event::kFailed, Stage::kUnusable},
    {Stage::kLocking, Event::kAbandoned, Stage::kOpen},
    {Stage::kLate, Event::kLocked, Stage::kHeld},
    {Stage::kLate, Event::kEnded, Stage::kOpen},
    {Stage::kLate, Event::kFailed, Stage::kLateUnusable},
    {Stage::kLate, Event::kAbandoned, Stage::kGivenUp},
    {Stage::kHeld, Event::kReleased, Stage::kReleasing},
    // A lost lock prevents no checkpoint: regroup-persist checks the owner of each by itself.
    {Stage::kHeld, Event::kEnded, Stage::kOpen},
    {Stage::kHeld, Event::kFailed, Stage::kOpen},
    {Stage::kHeld, Event::kAbandoned, Stage::kOpen},
    {Stage::kReleasing, Event::kEnded, Stage::kOpen},
    {Stage::kReleasing, Event::kFailed, Stage::kOpen},
    {Stage::kReleasing, Event::kAbandoned, Stage::kOpen},
};

}  // namespace

DirectoryStage next_stage(DirectoryStage stage, DirectoryEvent event) {
  const auto* edge = std::ranges::find_if(
      kEdges, [&](const Edge& each) { return each.from == stage && each.event == event; });
  return edge == std::end(kEdges) ? stage : edge->to;
}

}  // namespace regroup::writer
