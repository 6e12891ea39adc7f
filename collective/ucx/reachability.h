// What TCP knows of other hosts: whether those that owe an answer still give any, and have all that was sent.
#pragma once

#include <span>

#include "collective/ucx/peer_address.h"
#include "core/clock.h"

namespace regroup::collective {

// False if connections of this process to one of the addresses have data under way, none of which was
// acknowledged for `patience`, and no other connection to them has heard anything since. True if not, or if
// there is no such connection: then TCP knows nothing. Looks at every open file; tens of microseconds.
[[nodiscard]] bool host_answers(std::span<const PeerAddress> addresses, core::Duration patience);
// A connection of this process to one of the addresses has bytes that the host there has not acknowledged,
// for want of room or of time. As long, too.
[[nodiscard]] bool has_unsent(std::span<const PeerAddress> addresses);
// The host at this address has taken a connection of this process to this port. As long, too.
[[nodiscard]] bool is_connected(const PeerAddress& address);

}  // namespace regroup::collective
