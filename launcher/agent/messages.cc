// Instantiates the variant of messages once: its copies, moves and destructors.
#include "launcher/agent/messages.h"

#include "base/variant_definitions.h"

namespace regroup {

template class base::Variant<
    node::Setup, node::AddApp, node::DropApp, node::StartSpace, node::Signal, node::EndHost, node::Hello,
    node::SpaceStarted, node::Exited, node::UserMessage, node::Heartbeat, node::Done, node::Services,
    node::StreamData, node::WindowUpdate, node::Membership, node::StartAgents, node::AddRoute, node::EndAgent,
    node::ChildEvent, node::Relayed, node::Gathered, node::InventoryRequest, node::InventoryReply,
    node::UsageReport, node::Ack, node::HostNotice, node::QueryLocalCheckpoint, node::LocalCheckpointReply>;

}  // namespace regroup
