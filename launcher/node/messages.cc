// The messages between hosts: how they are copied, moved and destroyed.
#include "launcher/node/messages.h"

#include "core/variant_definitions.h"

namespace regroup {

template class core::Variant<node::Setup, node::AddApp, node::DropApp, node::StartSpace, node::Signal,
                             node::EndHost, node::Hello, node::SpaceStarted, node::Exited, node::Said,
                             node::Beat, node::Done, node::Services, node::Data, node::Taken,
                             node::Membership, node::StartAgents, node::Reach, node::EndAgent,
                             node::ChildNews, node::Relayed, node::Gathered, node::Survey, node::Surveyed,
                             node::Used, node::Heard, node::HostNotice, node::AskOwn, node::OwnFound>;

}  // namespace regroup
