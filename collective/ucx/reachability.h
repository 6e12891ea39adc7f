// Reads from the kernel's TCP state whether the hosts of peers still acknowledge data, and whether
// they have acknowledged all of it. Each function inspects every open file of the process, which
// takes tens of microseconds. Any thread.
#pragma once

#include <span>

#include "base/clock.h"
#include "collective/ucx/peer_address.h"

namespace regroup::collective::ucx {

// False if a connection of this process to `addresses` has sent data again and again without an
// acknowledgement, and none of them has received anything for `timeout`. True otherwise, also
// without any such connection.
[[nodiscard]] bool host_answers(std::span<const PeerAddress> addresses, base::Duration timeout);
// True if a connection of this process to one of the addresses has bytes that the host there has
// not acknowledged, because its receive buffer is full or because they are still in flight.
[[nodiscard]] bool has_unsent(std::span<const PeerAddress> addresses);
// True if the host at this address has accepted a connection of this process to this port.
[[nodiscard]] bool is_connected(const PeerAddress& address);

}  // namespace regroup::collective::ucx
