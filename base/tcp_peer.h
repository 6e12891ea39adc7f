// The other end of a TCP connection: its address, and whether its host lives.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace regroup::base {

// The peer's address, "10.0.0.2:4711", or "an unknown address".
[[nodiscard]] std::string peer_of(int socket);
// Sets TCP_NODELAY and keep-alive, so that the death of a silent peer's host is detected within
// `silence`. Does not set TCP_USER_TIMEOUT, which would close connections to peers that live and
// have stopped reading.
[[nodiscard]] Status keep_alive(int socket, Duration silence);
// kPeerLost: sent bytes were not acknowledged for `silence`, or the connection is broken. A peer
// that acknowledges and does not read is alive.
[[nodiscard]] Status check_alive(int socket, Duration silence);

}  // namespace regroup::base
