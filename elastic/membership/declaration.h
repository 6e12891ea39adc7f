// What members say of themselves when they join, and that all of a job say the same.
#pragma once

#include <string>

#include "core/message.h"
#include "core/status.h"

namespace regroup::membership {

// That `join` has the model and shape of `first`, the job's first member, and its numeric fingerprint:
// kInvalidArgument with a sentence that says what differs. With `any_fingerprint` (--bits=off) another
// fingerprint is let in, and `warning` says so.
[[nodiscard]] core::Status check_declaration(const core::Join& join, const core::Join& first,
                                             bool any_fingerprint, std::string* warning);
// The same of the fingerprint of the checkpoint that the job goes on from.
[[nodiscard]] core::Status check_resumed(const core::Join& join, const std::string& fingerprint,
                                         bool any_fingerprint, std::string* warning);

}  // namespace regroup::membership
