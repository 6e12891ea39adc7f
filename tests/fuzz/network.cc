// Bytes that come from the network before and after a peer has proved itself: whatever they are, a
// listener and a dialler refuse them or hold the truth. The input is taken three ways: as what a
// stranger sends to either side; as edits (position: 3 bytes, value: 1 byte) that somebody on the
// wire makes to a good connection; and as the texts that name peers.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>

#include "base/fd.h"
#include "launcher/transport/job_secret.h"
#include "launcher/transport/tcp.h"
#include "launcher/transport/tls_session.h"
#include "proto/wire.h"
#include "tests/fuzz/require.h"

using namespace regroup;
using regroup::fuzz::require;
using transport::TlsSession;

namespace {

struct Pair {
  Pair() {
    std::array<int, 2> fds{};
    require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds.data()) == 0);
    ours = base::Fd(fds[0]);
    wire = base::Fd(fds[1]);
  }
  base::Fd ours, wire;
};

std::shared_ptr<const transport::TlsContext> context_of(proto::NodeId self) {
  static const auto kSecret = transport::JobSecret::generate().value();
  return transport::TlsContext::make("job", self, kSecret).value();
}

std::unique_ptr<TlsSession> session(bool server, const Pair& pair) {
  static const auto kServer = context_of(0), kClient = context_of(1);
  auto made = server ? TlsSession::server(kServer, pair.ours.get())
                     : TlsSession::client(kClient, pair.ours.get(), 0);
  return std::move(made).value();
}

bool done(TlsSession& tls) {
  const auto want = tls.handshake();
  return want.ok() && *want == TlsSession::Want::kNothing;
}

void stranger(bool server, std::span<const std::uint8_t> bytes) {
  const Pair pair;
  const auto tls = session(server, pair);
  require(!done(*tls));
  for (const auto part : {bytes.first(bytes.size() / 2), bytes.subspan(bytes.size() / 2)}) {
    if (!part.empty())
      static_cast<void>(::send(pair.wire.get(), part.data(), part.size(), MSG_NOSIGNAL));
    require(!done(*tls));
  }
}

// Carries what is there from one wire to the other; `edits` are by position in the whole of it.
void carry(const Pair& from, const Pair& to, const std::map<std::size_t, std::uint8_t>& edits,
           std::size_t& position) {
  std::array<std::uint8_t, 4096> bytes{};
  ssize_t count = 0;
  while ((count = ::recv(from.wire.get(), bytes.data(), bytes.size(), 0)) > 0) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i, ++position) {
      if (const auto edit = edits.find(position); edit != edits.end()) bytes.at(i) ^= edit->second;
    }
    static_cast<void>(
        ::send(to.wire.get(), bytes.data(), static_cast<std::size_t>(count), MSG_NOSIGNAL));
  }
}

void in_the_middle(std::span<const std::uint8_t> input) {
  std::map<std::size_t, std::uint8_t> edits;
  for (; input.size() >= 4; input = input.subspan(4)) {
    edits[(input[0] + 256U * input[1] + 65536U * input[2]) % 2048] = input[3];
  }
  const Pair near, far;
  const auto client = session(false, near), server = session(true, far);
  std::size_t position = 0;
  bool here = false, there = false;
  for (int turn = 0; turn < 4; ++turn) {
    here = here || done(*client);
    carry(near, far, edits, position);
    there = there || done(*server);
    carry(far, near, edits, position);
  }
  if (!here || !there) return;
  const auto message = proto::encode({1, proto::Revoke{7}});
  if (!client->write(message).ok()) return;
  carry(near, far, edits, position);
  std::vector<std::byte> got(message.size());
  const auto read = server->read(got);
  if (read.ok() && read->bytes > 0) require(read->bytes == message.size() && got == message);
}

void names(std::string_view text) {
  if (const auto name = transport::LinkName::parse(text)) require(name->to_string() == text);
  if (const auto endpoints = transport::parse_endpoints(text); endpoints.ok()) {
    require(transport::parse_endpoints(transport::to_string(*endpoints)).value() == *endpoints);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes(data, std::min<std::size_t>(size, 48 << 10));
  stranger(true, bytes);
  stranger(false, bytes);
  in_the_middle(bytes.first(std::min<std::size_t>(bytes.size(), 64)));
  names({reinterpret_cast<const char*>(data), size});
  return 0;
}
