// Text of another host, made fit for whoever reads it here: a terminal, the journal, JSON.
#pragma once

#include "core/message.h"
#include "launcher/node/host_notice.h"

namespace regroup::node {

// Each sentence in what an agent tells the coordinator becomes one printable line; so does what is compared
// between hosts (model, fingerprint), at a length that no honest one has.
[[nodiscard]] core::Message printable(core::Message message);
[[nodiscard]] HostNotice printable(HostNotice notice);

}  // namespace regroup::node
