// Sanitises text from other hosts before it reaches a terminal, the journal or JSON.
#pragma once

#include "launcher/agent/host_notice.h"
#include "proto/message.h"

namespace regroup::agent {

// Returns `message` with each text field as one printable line of bounded length. Fields that are
// compared between hosts (model, fingerprint) keep a length that no valid value exceeds.
[[nodiscard]] proto::Message printable(proto::Message message);
[[nodiscard]] HostNotice printable(HostNotice notice);

}  // namespace regroup::agent
