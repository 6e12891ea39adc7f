// The messages to and from regroup-pmi: how they are copied, moved and destroyed.
#include "launcher/pmi/messages.h"

#include "base/variant_definitions.h"

namespace regroup {

template class base::Variant<pmi::OpenSpace, pmi::ReplaceRank, pmi::MemberGone, pmi::CloseSpace,
                             pmi::Ping, pmi::SpawnDone, pmi::Services, pmi::RankReady,
                             pmi::Connected, pmi::Finalized, pmi::Aborted, pmi::GroupsConnected,
                             pmi::GroupsDisconnected, pmi::Spawn, pmi::Contribute, pmi::Gathered,
                             pmi::Fetch, pmi::Fetched, pmi::NameCall>;

}  // namespace regroup
