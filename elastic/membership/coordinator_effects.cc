// The effects of a coordinator: how they are copied, moved and destroyed.
#include "elastic/membership/coordinator_effects.h"

#include "core/variant_definitions.h"

namespace regroup {

template class core::Variant<membership::ToAgent, membership::ToClient, membership::Journal, membership::Say,
                             membership::Done>;

}  // namespace regroup
