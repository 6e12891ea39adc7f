// What the kernel's TCP knows of the hosts of peers: whether they still acknowledge data, and
// whether all data was acknowledged. Each function inspects every open file of the process, tens of
// microseconds. Any thread.
#pragma once

#include <span>

#include "base/clock.h"
#include "collective/ucx/peer_address.h"

namespace regroup::collective::ucx {

// False if connections of this process to one of the addresses have unacknowledged data, and no
// connection to them has received anything for `timeout`. True otherwise, also if there is no such
// connection: then TCP knows nothing.
[[nodiscard]] bool host_answers(std::span<const PeerAddress> addresses, base::Duration timeout);
// True if a connection of this process to one of the addresses has bytes that the host there has
// not acknowledged, because its receive buffer is full or because they are still in flight.
[[nodiscard]] bool has_unsent(std::span<const PeerAddress> addresses);
// True if the host at this address has accepted a connection of this process to this port.
[[nodiscard]] bool is_connected(const PeerAddress& address);

}  // namespace regroup::collective::ucx
