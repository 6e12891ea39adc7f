// The messages of a malicious agent to the controller.
#pragma once

#include <chrono>
#include <string_view>
#include <utility>

#include "launcher/agent/wire.h"
#include "tests/launcher/agent/hostile_wire.h"

namespace regroup::agent {

// What an attack waits for.
enum class Until {
  kTaken,     // the controller's WindowUpdate
  kGathered,  // and the first fence
  kClosed,    // the end of the link, on which others than the controller decide
};

struct Attack {
  std::string_view name;
  void (*say)(Wire& wire);
  Until until = Until::kTaken;
  std::chrono::seconds at_most = kAnswer;
};

// Null: there is none of this name.
[[nodiscard]] const Attack* find_attack(std::string_view name);

inline constexpr proto::Incarnation kNewest = 1000;  // at least that of whoever is told

[[nodiscard]] inline Message membership(proto::Body body) {
  return Membership{{kNewest, std::move(body), 0}};
}

}  // namespace regroup::agent
