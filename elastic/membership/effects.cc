// The effects of agent and coordinator: how they are copied, moved and destroyed.
#include "elastic/membership/agent_effects.h"
#include "elastic/membership/coordinator_effects.h"

#include "core/variant_definitions.h"

namespace regroup {

template class core::Variant<membership::ToCoordinator, membership::ToMember, membership::StartMember,
                             membership::KillMember, membership::CloseMember, membership::WatchLine,
                             membership::ReleaseMember, membership::Ring, membership::Fetch,
                             membership::StopFetch, membership::Warn>;
template class core::Variant<membership::ToAgent, membership::ToClient, membership::Journal, membership::Say,
                             membership::Done>;

}  // namespace regroup
