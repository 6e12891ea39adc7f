// The bodies of messages: how they are copied, moved and destroyed.
#include "core/message.h"

#include "core/variant_definitions.h"

namespace regroup {

template class core::Variant<
    core::Join, core::Ready, core::Drained, core::Welcome, core::Refused, core::Excluded, core::MemberReady,
    core::MemberDrained, core::MemberLost, core::Report, core::HelloReply, core::Start, core::Revoke,
    core::Announce, core::Notice, core::Kill, core::Query, core::Hello, core::JobDone, core::StatusRequest,
    core::StatusReply, core::ResizeRequest, core::NoticeRequest, core::KillRequest, core::Reply,
    core::Contacts, core::PeerSuspect, core::NodeUp, core::NodeSilent, core::NodeLost, core::NodesKnown,
    core::StartSource, core::SourceStatus, core::StartTarget, core::TargetStatus, core::EndTransfer,
    core::Diverged, core::Failure>;

}  // namespace regroup
