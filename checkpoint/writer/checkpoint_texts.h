// The forms of a CheckpointPlan for members (environment), regroup-persist (JSON) and the user
// (sentences).
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

// Parses regroup-persist's description `text` of a checkpoint in `about`; empty: there is none.
// kInvalidArgument: it has no state of a World, or with `tables` no tables of a parameter server.
[[nodiscard]] base::Result<std::optional<Resume>> resume_of(const std::string& text,
                                                            const std::string& about,
                                                            bool tables = false);
// The local directory that may also hold the checkpoint to resume from; "": none.
[[nodiscard]] std::string local_copy(const CheckpointPlan& plan);

// Adds the variables that describe the plan to a member's environment.
void add_checkpoint_variables(const CheckpointPlan& plan, spec::Environment& environment);

// A sentence about the newest checkpoint. `committed`, `writing`: the steps of the checkpoints that
// this host has written last and is writing now; 0: none.
[[nodiscard]] std::string newest_of(const CheckpointPlan& plan, proto::Step committed,
                                    proto::Step writing, bool several_hosts);
// The sentence for the user that the job resumes from plan.resume, which must be set.
[[nodiscard]] std::string resumes(const CheckpointPlan& plan);

}  // namespace regroup::writer
