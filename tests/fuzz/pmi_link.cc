// Packets on the socket between an agent and regroup-pmi, some with descriptors beside them:
// whatever they are, a message that is told is one that can be said again, the first that is none
// ends the link, and no descriptor is left open.
#include "launcher/pmi/link.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <cstring>

#include "launcher/pmi/wire.h"
#include "tests/fuzz/choices.h"
#include "tests/fuzz/require.h"

using namespace regroup;
using regroup::fuzz::Choices;
using regroup::fuzz::require;

namespace {

constexpr std::size_t kMostDescriptors = 3;

int open_descriptors() {
  int count = 0;
  for (int fd = 0; fd < 64; ++fd) count += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  return count;
}

void send(int socket, std::span<const std::uint8_t> packet, std::size_t descriptors) {
  iovec bytes{const_cast<std::uint8_t*>(packet.data()), packet.size()};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> room{};
  if (descriptors > 0) {
    message.msg_control = room.data();
    message.msg_controllen = CMSG_LEN(descriptors * sizeof(int));
    auto* header = reinterpret_cast<cmsghdr*>(room.data());
    *header = {
        .cmsg_len = message.msg_controllen, .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    for (std::size_t i = 0; i < descriptors; ++i)
      std::memcpy(CMSG_DATA(header) + i * sizeof socket, &socket, sizeof socket);
  }
  static_cast<void>(::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static boost::asio::io_context loop;
  {
    auto sockets = pmi::link_sockets().value();
    Choices choices({data, size});
    int lost = 0;
    pmi::Link link(
        loop, std::move(sockets.first),
        [&lost](const pmi::Message& message, const base::Fd&) {
          require(lost == 0);
          const auto bytes = pmi::encode(message);
          const auto again = pmi::decode(bytes);
          require(again.ok() && pmi::encode(*again) == bytes);
        },
        [&lost](const base::Status& why) { require(++lost == 1 && !why.message().empty()); });
    const int before = open_descriptors();
    while (!choices.empty() && lost == 0) {
      const std::size_t descriptors = choices.below(kMostDescriptors + 1);
      send(sockets.second.get(), choices.some(), descriptors);
      link.poll();
    }
    require(open_descriptors() == before - lost);  // a link that is lost has closed its own
  }
  loop.poll();
  return 0;
}
