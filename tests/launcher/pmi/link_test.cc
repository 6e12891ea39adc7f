// Packets between an agent and regroup-pmi. The files of tests/golden/pmi_link, from which
// fuzz_pmi_link begins, hold them as a Link sends them: how many descriptors come with each, its
// size (two bytes), and itself.
#include "launcher/pmi/link.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <cstring>
#include <optional>

#include "launcher/pmi/wire.h"
#include "tests/base/golden_files.h"
#include "tests/launcher/pmi/wire_samples.h"

namespace regroup::pmi {
namespace {

constexpr const char* kFolder = "pmi_link";

std::vector<Message> all_samples() {
  std::vector<Message> all = samples();
  // File 19, which is older than the samples after it.
  all.insert(all.begin() + 19,
             Contribute{"fence #2", {0, 2}, 2, std::vector<std::byte>(40'000, std::byte{7})});
  return all;
}

struct PmiPackets : testing::Test {
  PmiPackets() {
    auto sockets = link_sockets();
    EXPECT_TRUE(sockets.ok());
    peer = std::move(sockets->second);
    link = std::make_unique<Link>(
        loop, std::move(sockets->first),
        [this](const Message& message, base::Fd fd) {
          got = message;
          got_fd = std::move(fd);
        },
        [this](const base::Status& why) { lost = why; });
  }

  void send(std::span<const std::byte> packet, std::size_t descriptors) const {
    std::vector<std::byte> copy(packet.begin(), packet.end());
    iovec bytes{copy.data(), copy.size()};
    msghdr message{};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(4 * sizeof(int))> room{};
    if (descriptors > 0) {
      message.msg_control = room.data();
      message.msg_controllen = CMSG_LEN(descriptors * sizeof(int));
      auto* header = reinterpret_cast<cmsghdr*>(room.data());
      header->cmsg_len = message.msg_controllen;
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      const int fd = peer.get();
      for (std::size_t i = 0; i < descriptors; ++i)
        std::memcpy(CMSG_DATA(header) + i * sizeof fd, &fd, sizeof fd);
    }
    ASSERT_EQ(::sendmsg(peer.get(), &message, MSG_NOSIGNAL), static_cast<ssize_t>(packet.size()));
  }

  boost::asio::io_context loop;
  base::Fd peer;
  std::unique_ptr<Link> link;
  std::optional<Message> got;
  base::Fd got_fd;
  std::optional<base::Status> lost;
};

TEST_F(PmiPackets, DISABLED_WriteGoldenFiles) {
  int number = 0;
  for (const Message& message : all_samples()) {
    ASSERT_TRUE(link->send(message));
    std::vector<std::byte> file, packet(64 << 10);
    for (ssize_t count = 0;
         (count = ::recv(peer.get(), packet.data(), packet.size(), MSG_DONTWAIT)) > 0;) {
      file.push_back(std::byte{0});
      file.push_back(static_cast<std::byte>(count & 0xff));
      file.push_back(static_cast<std::byte>(count >> 8));
      file.insert(file.end(), packet.begin(), packet.begin() + count);
    }
    base::write_golden(kFolder, fmt::format("{:02}", number++), file);
  }
}

TEST_F(PmiPackets, EveryGoldenFileIsItsMessage) {
  int number = 0;
  for (const Message& message : all_samples()) {
    const auto file = base::read_golden(kFolder, fmt::format("{:02}", number++));
    got.reset();
    for (std::size_t at = 0; at + 3 <= file.size();) {
      const std::size_t size = std::to_integer<std::size_t>(file[at + 1]) +
                               256 * std::to_integer<std::size_t>(file[at + 2]);
      ASSERT_LE(at + 3 + size, file.size());
      send(std::span(file).subspan(at + 3, size), 0);
      link->poll();
      at += 3 + size;
    }
    ASSERT_TRUE(got) << number;
    EXPECT_EQ(encode(*got), encode(message)) << number;
  }
}

TEST_F(PmiPackets, ASecondDescriptorIsNotKeptOpen) {
  std::vector<std::byte> packet{std::byte{0}};
  const auto bytes = encode(Ping{});
  packet.insert(packet.end(), bytes.begin(), bytes.end());
  const auto open_descriptors = [] {
    int count = 0;
    for (int fd = 0; fd < 1024; ++fd) count += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    return count;
  };
  const int before = open_descriptors();
  send(packet, 2);
  link->poll();
  ASSERT_TRUE(got);
  EXPECT_TRUE(got_fd.valid());
  got_fd.reset();
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(PmiPackets, ADescriptorOfAnEmptyPacketIsNotKeptOpen) {
  const auto open = [](int fd) { return ::fcntl(fd, F_GETFD) >= 0; };
  const int next = base::Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC)).get();
  send({}, 1);
  link->poll();
  ASSERT_TRUE(lost);
  EXPECT_FALSE(open(next));
}

TEST_F(PmiPackets, WhatIsNoMessageEndsIt) {
  const std::array<std::byte, 5> none{std::byte{0}, std::byte{1}, std::byte{2}, std::byte{3},
                                      std::byte{4}};
  send(none, 0);
  link->poll();
  ASSERT_TRUE(lost);
  EXPECT_EQ(lost->code(), base::Code::kDataLoss);
  EXPECT_FALSE(got);
}

}  // namespace
}  // namespace regroup::pmi
