// What a message may hold beside what the verifier of FlatBuffers looks at. For wire.cc alone.
#pragma once

#include <cstddef>
#include <string_view>

#include "launcher/node/wire_generated.h"

namespace regroup::node {

// Nothing in it is said many times over by offsets that name the same (core/flat_budget.h).
[[nodiscard]] bool unpacks_within(const fb::Message& message, std::size_t bytes);
// It is no longer, and its parts no deeper within each other, than what a host says of itself: who reads it
// goes down into them by recursion.
[[nodiscard]] bool bounded_json(std::string_view json);

}  // namespace regroup::node
