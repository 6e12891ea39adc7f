// Instantiates the variant of messages once: its copies, moves and destructors.
#include "launcher/agent/messages.h"

#include "base/variant_definitions.h"

namespace regroup {

template class base::Variant<
    agent::Setup, agent::AddApp, agent::DropApp, agent::StartSpace, agent::Signal, agent::EndHost,
    agent::Hello, agent::SpaceStarted, agent::Exited, agent::UserMessage, agent::Heartbeat,
    agent::Done, agent::Services, agent::StreamData, agent::WindowUpdate, agent::Membership,
    agent::StartAgents, agent::AddRoute, agent::EndAgent, agent::ChildEvent, agent::Relayed,
    agent::Gathered, agent::InventoryRequest, agent::InventoryReply, agent::UsageReport, agent::Ack,
    agent::HostNotice, agent::QueryLocalCheckpoint, agent::LocalCheckpointReply, agent::StartStore,
    agent::QueryStore, agent::StoreStarted, agent::StoreReply, agent::StoreFailed>;

}  // namespace regroup
