// The effects of a coordinator: how they are copied, moved and destroyed.
#include "membership/coordinator/coordinator_effects.h"

#include "base/variant_definitions.h"

namespace regroup {

template class base::Variant<membership::ToAgent, membership::ToClient, membership::Journal,
                             membership::Say, membership::Done>;

}  // namespace regroup
