// Any bytes from a client on another host, which has the job's token: the gateway answers what is a
// request, ends the connection at what is none, frees the client's lane, and serves others as
// before. The input is a sequence of requests: raw bytes, or heads and payloads that are mostly
// well-formed.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <vector>

#include "collective/ps/gateway.h"
#include "collective/ps/lane.h"
#include "collective/ps/server.h"
#include "tests/fuzz/choices.h"
#include "tests/fuzz/require.h"

using namespace regroup;
using namespace regroup::collective::ps;
using fuzz::Choices;
using fuzz::require;

namespace {

constexpr std::chrono::seconds kDeadline{60};

struct Host {
  Host() {
    base::Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    require(::bind(listener.get(), reinterpret_cast<sockaddr*>(&at), size) == 0);
    require(::listen(listener.get(), 16) == 0);
    require(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&at), &size) == 0);
    address = {.host = "here", .address = "127.0.0.1", .port = ntohs(at.sin_port)};
    gateway = Gateway::start({.memory = memory.get(),
                              .listener = std::move(listener),
                              .next_client = [this] { return ++clients; }})
                  .value();
  }
  OwnedServerMemory memory = make_server_memory({.job_seed = 7,
                                                 .segments = 2,
                                                 .segment_bytes = 1 << 20,
                                                 .ring_bytes = 64 << 10,
                                                 .lanes = 2,
                                                 .lane_bytes = 64 << 10})
                                 .value();
  std::unique_ptr<Server> server = Server::start(memory.get(), kDeadline).value();
  std::atomic<std::uint64_t> clients = 0;
  GatewayAddress address;
  std::unique_ptr<Gateway> gateway;
};

std::unique_ptr<Client> attach(const Host& host) {
  return Client::attach({.memory = to_text(host.address), .deadline = kDeadline}).value();
}

OpenContent table_of(Choices& choices) {
  OpenContent out = content_of({.name = "fuzzed", .kind = TableKind::kHash, .dim = 2});
  if (choices.below(2) == 0) return out;
  out.kind = static_cast<TableKind>(choices.below(4));
  out.rows = choices.below(4) == 0 ? choices.number() : choices.below(64);
  out.dim = choices.below(8);
  out.dtype = static_cast<collective::Dtype>(choices.below(9));
  out.optimizer.kind = static_cast<OptimizerKind>(choices.below(11));
  if (choices.below(2) == 0) {
    out.part = {.number = choices.below(4), .of = choices.below(4), .shards = choices.below(8)};
    if (choices.below(8) == 0) out.part.shards = static_cast<std::uint32_t>(choices.number());
  }
  out.name.fill(0);
  out.name[0] = static_cast<char>('a' + choices.below(3));
  return out;
}

std::vector<std::byte> request_of(Choices& choices, std::uint64_t number) {
  Request request{.kind = static_cast<RequestKind>(choices.below(19)),
                  .table = choices.below(3),
                  .number = choices.below(8) == 0 ? choices.number() : number,
                  .count = choices.below(16) == 0 ? choices.number() : choices.below(5),
                  .of = choices.below(static_cast<std::uint32_t>(number) + 2),
                  .wait = choices.below(3) * 1'000'000,
                  .lr = choices.below(4) * 0.5,
                  .first = choices.below(2)};
  std::vector<std::byte> payload;
  if (request.kind == RequestKind::kOpen) {
    const OpenContent content = table_of(choices);
    payload.resize(sizeof content);
    std::memcpy(payload.data(), &content, sizeof content);
  } else if (request.kind == RequestKind::kPush || request.kind == RequestKind::kPull) {
    // Rows of 8 bytes, as table "fuzzed" has.
    payload.resize(choices.below(8) == 0
                       ? choices.below(64)
                       : request.count % 16 * (request.kind == RequestKind::kPush ? 16 : 8));
    const auto some = std::as_bytes(choices.some());
    std::copy_n(some.begin(), std::min(some.size(), payload.size()), payload.begin());
  } else if (request.kind == RequestKind::kClaimLeaf) {
    payload.resize(sizeof(LeafSet));
  }
  request.bytes = choices.below(16) == 0 ? choices.number() : payload.size();
  std::vector<std::byte> out(sizeof request);
  std::memcpy(out.data(), &request, sizeof request);
  out.insert(out.end(), payload.begin(), payload.end());
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Host host;
  Choices choices(std::span(data, size));
  Hello hello;
  hello.deadline = std::chrono::nanoseconds(kDeadline).count();
  std::vector<std::byte> sent(sizeof hello);
  std::memcpy(sent.data(), &hello, sizeof hello);
  for (std::uint64_t number = 1; !choices.empty() && number <= 64; ++number) {
    const auto some = std::as_bytes(choices.some());
    const std::vector<std::byte> next = choices.below(8) == 0
                                            ? std::vector<std::byte>(some.begin(), some.end())
                                            : request_of(choices, number);
    sent.insert(sent.end(), next.begin(), next.end());
  }
  const base::TimePoint end = shmem::RealPolicy::now() + kDeadline;
  const base::Fd socket = connect_link("127.0.0.1", host.address.port, end).value();
  // All of it fits into the kernel's buffers, or the gateway has closed.
  static_cast<void>(::send(socket.get(), sent.data(), sent.size(), MSG_NOSIGNAL));
  ::shutdown(socket.get(), SHUT_WR);
  const timeval within{.tv_sec = kDeadline.count(), .tv_usec = 0};
  require(::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &within, sizeof within) == 0);
  require(::fcntl(socket.get(), F_SETFL, 0) == 0);
  std::array<std::byte, 4096> answer;
  ssize_t count = 1;
  while (count > 0) count = ::recv(socket.get(), answer.data(), answer.size(), 0);
  require(count == 0 || errno == ECONNRESET);  // not a deadline: the gateway has ended it
  const std::unique_ptr<Client> good = attach(host);
  const auto table = good->open({.name = "good", .kind = TableKind::kHash});
  require(table.ok() || table.code() == base::Code::kResourceExhausted);
  require(good->flush().ok());
  return 0;
}
