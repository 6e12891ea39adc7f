// What is said of a CheckpointPlan: to members, to regroup-persist and to the user.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "launcher/spec/checkpoint_plan.h"
#include "launcher/spec/request.h"
#include "proto/world.h"

namespace regroup::writer {

using spec::CheckpointPlan;
using spec::Resume;

// Parses regroup-persist's description of a checkpoint in `about`; none: there is no checkpoint.
[[nodiscard]] base::Result<std::optional<Resume>> resume_of(const std::string& text,
                                                            const std::string& about);
// The local directory that may hold the checkpoint to resume from, too; "": none.
[[nodiscard]] std::string local_copy(const CheckpointPlan& plan);

// Adds the variables that describe the plan to a member.
void add_checkpoint_variables(const CheckpointPlan& plan, spec::Environment& environment);

// A sentence about the newest checkpoint; `committed`: that this host has written, `writing`: that
// it is writing; 0: none.
[[nodiscard]] std::string newest_of(const CheckpointPlan& plan, proto::Step committed,
                                    proto::Step writing, bool several_hosts);
// The sentence for the user about plan.resume, which must be set.
[[nodiscard]] std::string resumes(const CheckpointPlan& plan);

}  // namespace regroup::writer
