// One message of every type, with every field set.
#pragma once

#include <vector>

#include "launcher/pmi/messages.h"

namespace regroup::pmi {

inline std::vector<Message> samples() {
  return {OpenSpace{1, 4, true, {2, 3}, 7, {{"0-1", "SK0:HT0-1"}, {"", ""}}},
          ReplaceRank{{1, 2}},
          MemberGone{{1, 2}, 3, 9, true},
          CloseSpace{3},
          Ping{},
          SpawnDone{7, 1, "no such program"},
          Services{true, "note"},
          RankReady{{1, 2}, {"A=1", "B="}},
          Connected{{1, 2}},
          Finalized{{1, 2}},
          Aborted{{1, 2}, -5, "why"},
          GroupsConnected{{0, 1}},
          GroupsDisconnected{{0, 1, 2}},
          OpenSpace{1, 4, false, {2}, 0, {}, ProcId{0, 3}, {"a", "b"}, {1, 1}, 1},
          Contribute{"fence #1", {0, 2}, 2, {std::byte{1}, std::byte{2}}},
          Gathered{"fence #1", {std::byte{1}}},
          Fetch{7, 2, {1, 3}},
          Fetched{7, 2, -46, {std::byte{1}}},
          Spawn{7, {1, 2}, {{"./a", {"x", ""}, {"E=1"}, "/tmp", 4}, {"b", {}, {}, "", 1}}},
          Spawn{8, {1, 2}, {}, {"key", "value"}},
          OpenSpace{1, 4, false, {2}, 0, {}, ProcId{0, 3}, {"a", "b"}, {1, 1}, 1, {"key", ""}},
          Contribute{"fence #1", {0, 2}, 2, {std::byte{1}}, 3},
          NameCall{8, 2, {1, 3}, NameOperation::kPmi1Lookup, {std::byte{1}}}};
}

}  // namespace regroup::pmi
