// The bodies of messages: how they are copied, moved and destroyed.
#include "proto/message.h"

#include "base/variant_definitions.h"

namespace regroup {

template class base::Variant<
    proto::Join, proto::Ready, proto::Drained, proto::Welcome, proto::Refused, proto::Excluded,
    proto::MemberReady, proto::MemberDrained, proto::MemberLost, proto::Report, proto::HelloReply,
    proto::Start, proto::Revoke, proto::Announce, proto::Notice, proto::Kill, proto::Query,
    proto::Hello, proto::JobDone, proto::StatusRequest, proto::StatusReply, proto::ResizeRequest,
    proto::NoticeRequest, proto::KillRequest, proto::Reply, proto::PeerAddresses,
    proto::PeerSuspect, proto::NodeUp, proto::NodeSilent, proto::NodeLost, proto::NodesKnown,
    proto::StartSource, proto::SourceStatus, proto::StartTarget, proto::TargetStatus,
    proto::EndTransfer, proto::Diverged, proto::Failure, proto::DeviceLine,
    proto::AllocateDeviceMemory, proto::DeviceMemory, proto::CarrierLost>;

}  // namespace regroup
