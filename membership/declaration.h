// What a member declares when it joins (model, shape, numeric fingerprint), which must equal the
// declaration of the job's first member.
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"
#include "proto/message.h"

namespace regroup::membership {

// Join::model is the text that is compared, followed by the list of tensors for error messages:
// this character before each, a tab between its name and its type and shape.
inline constexpr char kTensors = '\x1e';
inline constexpr std::size_t kMostOfList = 32 << 10;  // bytes; a member cuts a longer list

// proto::Failure::kind of a member whose model differs from the job's.
inline constexpr const char* kOtherModelKind = "another model";
// proto::Failure::kind of a member that was refused because `join` differs from `first`.
[[nodiscard]] const char* refusal_kind(const proto::Join& join, const proto::Join& first);

// Checks that `join` has the model, shape and numeric fingerprint of `first`, the job's first
// member. kInvalidArgument says what differs. With `any_fingerprint` (--reproducible=off) another
// fingerprint is accepted and `warning` says so.
[[nodiscard]] base::Status check_declaration(const proto::Join& join, const proto::Join& first,
                                             bool any_fingerprint, std::string* warning);
// As check_declaration(), against `fingerprint`, that of the checkpoint from which the job resumes.
[[nodiscard]] base::Status check_resumed(const proto::Join& join, const std::string& fingerprint,
                                         bool any_fingerprint, std::string* warning);

}  // namespace regroup::membership
