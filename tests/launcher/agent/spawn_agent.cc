// An agent for tests of spawners: reads the job's secret, says what it was given, and, if its first
// argument is
// "--connect", JOB, NODE and ENDPOINTS, talks to the launcher until that closes the link. Ends with
// its input.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "tests/launcher/transport/net_test.h"

namespace regroup::agent {
namespace {

std::string hex(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) out += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return out;
}

int fail(const base::Status& why) {
  std::cerr << why.to_string() << std::endl;
  return 3;
}

int connect_back(std::shared_ptr<const transport::JobSecret> secret, char** argv) {
  boost::asio::io_context loop;
  auto context = transport::TlsContext::make(
      argv[2], static_cast<proto::NodeId>(std::strtoul(argv[3], nullptr, 10)), std::move(secret));
  auto endpoints = transport::parse_endpoints(argv[4]);
  if (!context.ok() || !endpoints.ok()) return 4;
  int status = -1;
  std::shared_ptr<transport::SecureChannel> channel;
  const auto end = [&](const base::Status& why) {
    std::cout << "link: " << why.to_string() << std::endl;
    status = 0;
  };
  transport::dial(loop, *endpoints, transport::kDeadline, [&](base::Result<base::Fd> socket) {
    if (!socket.ok()) return end(socket.status());
    channel = transport::SecureChannel::client(loop, *context, std::move(*socket), 0).value();
    channel->start({.message = [&](const proto::Message& m) { channel->send(m); }, .closed = end});
    char name[65] = "";
    ::gethostname(name, sizeof name - 1);
    channel->send({1, proto::Reply{true, name}});
  });
  while (status < 0 && loop.run_one_for(std::chrono::minutes(1)) > 0) {
  }
  return status;
}

int run(int argc, char** argv) {
  auto secret = transport::JobSecret::read(STDIN_FILENO, transport::kDeadline);
  if (!secret.ok()) return fail(secret.status());
  std::array<std::byte, transport::JobSecret::kBytes> key{};
  if (!(*secret)->derive("test", key).ok()) return 5;
  std::cout << "key " << hex({reinterpret_cast<const char*>(key.data()), key.size()}) << std::endl;
  if (argc == 5 && std::string_view(argv[1]) == "--connect") return connect_back(*secret, argv);
  for (int i = 1; i < argc; ++i) std::cout << "argument " << hex(argv[i]) << std::endl;
  char folder[4096];
  std::cout << "folder " << ::getcwd(folder, sizeof folder) << std::endl;
  std::cerr << "to error\x1b[31m" << std::endl;
  char byte = 0;
  while (::read(STDIN_FILENO, &byte, 1) > 0) {
  }
  std::cout << "input ended" << std::endl;
  return 0;
}

}  // namespace
}  // namespace regroup::agent

int main(int argc, char** argv) { return regroup::agent::run(argc, argv); }
