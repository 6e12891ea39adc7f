// regroup-devices: an agent starts this process to create memory of the host's GPUs that no member
// owns. A crash in the driver ends only this process; what it has created stays, since the agent
// has the descriptors. usage: regroup-devices; descriptor 3 is the socket to the agent.
#include <fmt/format.h>
#include <unistd.h>

#include <variant>

#include "launcher/process/app.h"
#include "launcher/transport/packet_socket.h"
#include "tools/devices/device_memory.h"

int main(int argc, char**) {
  using namespace regroup;
  constexpr int kSocket = process::kInheritedFd;
  if (argc != 1) {
    fmt::print(stderr, "regroup-devices: it is started by regroup, without arguments\n");
    return 2;
  }
  devices::DeviceMemory memory;
  for (;;) {
    const auto packet = transport::receive_packet(kSocket, /*wait=*/true);
    // The agent has ended, or is no agent. The driver's threads still run.
    if (!packet.ok()) _exit(packet.code() == base::Code::kPeerLost ? 0 : 1);
    const auto* wanted = std::get_if<proto::AllocateDeviceMemory>(&(*packet)->message.body);
    if (wanted == nullptr) _exit(1);
    const devices::DeviceMemory::Answer answer = memory.allocate(*wanted);
    if (!transport::send_packet(kSocket, answer.memory, answer.descriptor.get(), /*wait=*/true)
             .ok())
      _exit(1);
  }
}
