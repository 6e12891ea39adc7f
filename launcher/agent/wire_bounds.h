// Limits of a message that the FlatBuffers verifier does not check. Private to wire.cc.
#pragma once

#include <cstddef>
#include <string_view>

#include "launcher/agent/wire_generated.h"

namespace regroup::agent {

// Unpacking `message` yields no more than its `bytes`: offsets do not alias one object many times
// (proto/flat_budget.h).
[[nodiscard]] bool unpacks_within(const fb::Message& message, std::size_t bytes);
// `json` is not longer and not nested deeper than any host inventory: its parser is recursive.
[[nodiscard]] bool bounded_json(std::string_view json);

}  // namespace regroup::agent
