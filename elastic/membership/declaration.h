// What members say of themselves when they join, and that all of a job say the same.
#pragma once

#include <cstddef>
#include <string>

#include "core/message.h"
#include "core/status.h"

namespace regroup::membership {

// In Join::model: what is compared; then, for the sentence that refuses another model, its tensors: before
// each this character, between its name and its type and shape a tab.
inline constexpr char kTensors = '\x1e';
inline constexpr std::size_t kMostOfList = 32 << 10;  // bytes of Join::model with a list that is not cut

// The kind of core::Failure of a member whose model is another than that of the members before it.
inline constexpr const char* kOtherModelKind = "another model";
// The kind of core::Failure of a member that is refused since `join` is not `first`.
[[nodiscard]] const char* refusal_kind(const core::Join& join, const core::Join& first);

// That `join` has the model and shape of `first`, the job's first member, and its numeric fingerprint:
// kInvalidArgument with a sentence that says what differs. With `any_fingerprint` (--bits=off) another
// fingerprint is let in, and `warning` says so.
[[nodiscard]] core::Status check_declaration(const core::Join& join, const core::Join& first,
                                             bool any_fingerprint, std::string* warning);
// The same of the fingerprint of the checkpoint that the job goes on from.
[[nodiscard]] core::Status check_resumed(const core::Join& join, const std::string& fingerprint,
                                         bool any_fingerprint, std::string* warning);

}  // namespace regroup::membership
