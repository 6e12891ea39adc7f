// Join, Welcome with the memfd, Ready; then only the arena.
#include "tests/elastic/agent.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "proto/wire.h"

namespace regroup::elastic::testing {
namespace {

std::string make_path() {
  std::string folder = ::testing::TempDir() + "regroupXXXXXX";
  EXPECT_NE(::mkdtemp(folder.data()), nullptr);
  return folder + "/agent";
}

shmem::Arena make_arena(std::uint32_t members, std::uint64_t snapshot_bytes,
                        std::uint64_t save_bytes) {
  auto arena = shmem::Arena::create({.slots = members,
                                     .elements = 1,
                                     .snapshot_bytes = snapshot_bytes,
                                     .save_bytes = save_bytes});
  EXPECT_TRUE(arena.ok()) << arena.status().to_string();
  for (std::uint32_t i = 0; i < members; ++i)
    arena->assign_slot(static_cast<proto::SlotIndex>(i), i);
  return std::move(*arena);
}

proto::Body next(int fd, proto::FrameReader* reader) {
  for (;;) {
    auto message = reader->next();
    EXPECT_TRUE(message.ok()) << message.status().to_string();
    if (!message.ok()) return {};
    if (*message) return (*message)->body;
    std::array<std::byte, 4096> buffer;
    const ssize_t got = ::recv(fd, buffer.data(), buffer.size(), 0);
    EXPECT_GT(got, 0) << "a member closed its connection";
    if (got <= 0) return {};
    reader->append(std::span(buffer).first(static_cast<std::size_t>(got)));
  }
}

}  // namespace

Agent::Agent(std::uint32_t members, std::uint64_t snapshot_bytes, std::uint64_t save_bytes)
    : Agent(make_arena(members, snapshot_bytes, save_bytes)) {}

Agent::Agent(shmem::Arena arena) : path_(make_path()), arena_(std::move(arena)) {
  listener_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path_.c_str(), sizeof address.sun_path - 1);
  EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
            0);
  EXPECT_EQ(::listen(listener_.get(), 16), 0);
}

Agent::~Agent() { std::filesystem::remove_all(std::filesystem::path(path_).parent_path()); }

void Agent::welcome_all() {
  while (links_.size() < arena_.spec().slots && !::testing::Test::HasFatalFailure()) welcome();
}

void Agent::welcome() {
  links_.emplace_back(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const int fd = links_.back().get();
  const timeval timeout{60, 0};
  EXPECT_EQ(::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout), 0);
  proto::FrameReader reader;
  const proto::Body first = next(fd, &reader);
  ASSERT_TRUE(std::holds_alternative<proto::Join>(first));
  send_welcome(fd, static_cast<proto::SlotIndex>(std::get<proto::Join>(first).member));
  EXPECT_TRUE(std::holds_alternative<proto::Ready>(next(fd, &reader)));
}

void Agent::announce(proto::Generation g, const std::set<proto::SlotIndex>& donors,
                     const std::set<proto::SlotIndex>& newcomers,
                     const std::set<proto::SlotIndex>& learners,
                     const std::vector<proto::SlotIndex>& owners) {
  proto::World world;
  world.incarnation = 1;
  world.generation = g;
  world.resume = proto::Position::of(resume);
  for (proto::SlotIndex slot = 0; slot < arena_.spec().slots; ++slot) {
    if (!donors.contains(slot) && !newcomers.contains(slot) && !learners.contains(slot)) continue;
    world.members.push_back({.id = slot,
                             .slot_id = {0, slot},
                             .needs_state = newcomers.contains(slot),
                             .replays = learners.contains(slot)});
  }
  world.shards = arena_.spec().shards;
  for (std::uint32_t leaf = 0; leaf < world.shards; ++leaf)
    world.plan.push_back({0, owners[leaf % owners.size()]});
  EXPECT_TRUE(arena_.publish_world(world).ok());
  shmem::ring_all(arena_);
}

void Agent::send_welcome(int fd, proto::SlotIndex slot) {
  std::vector<std::byte> frame = proto::encode({1, proto::Welcome{slot, arena_.spec().shards, 0}});
  const int memfd = arena_.memfd();
  iovec part{frame.data(), frame.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof memfd)> control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  cmsghdr* rights = CMSG_FIRSTHDR(&header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof memfd);
  std::memcpy(CMSG_DATA(rights), &memfd, sizeof memfd);
  EXPECT_EQ(::sendmsg(fd, &header, MSG_NOSIGNAL), static_cast<ssize_t>(frame.size()));
}

}  // namespace regroup::elastic::testing
