// The effects of an agent: how they are copied, moved and destroyed.
#include "membership/agent/agent_effects.h"

#include "base/variant_definitions.h"

namespace regroup {

template class base::Variant<
    membership::ToCoordinator, membership::ToMember, membership::StartMember,
    membership::KillMember, membership::CloseMember, membership::WatchOwner,
    membership::ReleaseMember, membership::Ring, membership::Fetch, membership::StopFetch,
    membership::CreateDeviceLine, membership::DropDeviceLine, membership::Warn>;

}  // namespace regroup
