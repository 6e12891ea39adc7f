// Two members on two hosts. The test is the carrier process of each host and the network of the
// mesh: it passes frames and notes on, or loses them.
#include "collective/mpi/client.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "base/fd.h"
#include "base/status.h"
#include "base/unix_address.h"
#include "tests/collective/harness.h"

namespace regroup::collective::mpi {
namespace {

using testing::eventually;

Input bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

class MpiClient : public ::testing::Test {
 protected:
  struct Host {
    base::Fd listener;
    base::Fd socket;
    FrameReader reader;
    FrameWriter writer;
    std::unique_ptr<Client> member;
  };

  void SetUp() override {
    for (int host = 0; host < 2; ++host) {
      const std::string name = fmt::format("regroup-test-{}/{}", ::getpid(), host);
      const auto address = base::abstract_address(name);
      Host& here = hosts_[static_cast<std::size_t>(host)];
      here.listener.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      ASSERT_EQ(::bind(here.listener.get(), address->get(), address->size), 0);
      ASSERT_EQ(::listen(here.listener.get(), 1), 0);
      here.member = std::make_unique<Client>(
          ClientOptions{.rank = host,
                        .host_of = {0, 1},
                        .socket = name,
                        .window = 1000,
                        .limits = limits_,
                        .on_lost = [this, host](const std::string& why) {
                          lost_[static_cast<std::size_t>(host)].push_back(why);
                        }});
    }
  }
  // From the first member to the other.
  std::uint64_t send(Input header, Input data) { return member(0).send(1, header, data); }
  Client& member(int rank) { return *hosts_[static_cast<std::size_t>(rank)].member; }

  void connect() {
    for (Host& host : hosts_) {
      ASSERT_TRUE(eventually([&] {
        static_cast<void>(host.member->progress());
        host.socket.reset(::accept4(host.listener.get(), nullptr, nullptr, SOCK_NONBLOCK));
        return host.socket.valid();
      }));
      host.writer.put(make_frame({.kind = FrameKind::kReady}));
    }
    ASSERT_TRUE(
        eventually([&] { return pump(), member(0).carries(1, 1) && member(1).carries(0, 1); }));
  }
  // Makes each carrier process one that does nothing.
  void make_processes() {
    for (std::size_t i = 0; i < 2; ++i) {
      const pid_t pid = ::fork();
      if (pid == 0) {
        for (;;) ::pause();
      }
      processes_[i] = pid;
      hosts_[i].writer.put(
          make_frame({.kind = FrameKind::kHello, .number = static_cast<std::uint64_t>(pid)}));
    }
  }
  bool is_dead(std::size_t host) {
    int status = 0;
    return processes_[host] == 0 ||
           (::waitpid(processes_[host], &status, WNOHANG) > 0 && (processes_[host] = 0, true));
  }
  void TearDown() override {
    for (const pid_t pid : processes_) {
      if (pid == 0) continue;
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }
  // Advances both members and carriers. `loses`: the carriers drop frames of data.
  void pump(bool loses = false) {
    for (std::size_t i = 0; i < 2; ++i) {
      Host& host = hosts_[i];
      Frame frame;
      while (host.socket.valid() &&
             host.reader.next(host.socket.get(), &frame) == FrameReader::Read::kFrame) {
        const FrameKind kind = frame.header.kind;
        if (kind == FrameKind::kFail) failed_[i] = true;
        if (kind == FrameKind::kProbe && answers_)
          ++answered_, host.writer.put(make_frame({.kind = FrameKind::kProbe}));
        if (kind != FrameKind::kAck && (kind != FrameKind::kData || loses)) continue;
        hosts_[1 - i].writer.put(make_frame(frame.header, {frame.bytes.get(), frame.header.bytes}));
      }
      if (host.socket.valid()) static_cast<void>(host.writer.flush(host.socket.get()));
      static_cast<void>(host.member->progress());
      const int rank = static_cast<int>(i);
      while (auto note = host.member->note()) member(note->to).on_note(rank, note->bytes);
      while (auto message = host.member->receive())
        arrived_[i].emplace_back(reinterpret_cast<const char*>(message->bytes.get()),
                                 message->size);
      while (auto message = host.member->returned())
        returned_[i].emplace_back(reinterpret_cast<const char*>(message->bytes.data()),
                                  message->bytes.size());
    }
  }

  std::array<Host, 2> hosts_;
  std::array<std::vector<std::string>, 2> arrived_, returned_;
  std::array<std::vector<std::string>, 2> lost_;
  std::array<pid_t, 2> processes_{};
  std::array<bool, 2> failed_{};
  ClientLimits limits_;
  bool answers_ = true;  // the carriers do, to probes
  int answered_ = 0;
};

class MpiClientWithShortLimits : public MpiClient {
 protected:
  MpiClientWithShortLimits() {
    limits_.answer = std::chrono::milliseconds(200);
    limits_.end = std::chrono::milliseconds(100);
  }
};
class MpiClientWithAShortStart : public MpiClient {
 protected:
  MpiClientWithAShortStart() { limits_.start = std::chrono::milliseconds(300); }
};

using Texts = std::vector<std::string>;

TEST_F(MpiClient, CarriesNothingBeforeAllCarriersAreConnected) {
  EXPECT_FALSE(member(0).carries(1, 1));
  connect();
  EXPECT_TRUE(member(0).carries(1, 1));
  EXPECT_FALSE(member(0).carries(0, 1));  // of the same host
}

// Else no carrier of another host reaches that of the first one before the first sum.
TEST_F(MpiClient, TheFirstMemberConnectsToTheLeadersOfOtherHosts) {
  const auto note = member(0).note();
  ASSERT_TRUE(note);
  EXPECT_EQ(note->to, 1);
  EXPECT_FALSE(member(0).note());
  EXPECT_FALSE(member(1).note());
  member(1).on_note(0, note->bytes);
  EXPECT_FALSE(member(1).note());
}

TEST_F(MpiClient, MessagesArriveInOrder) {
  connect();
  for (const char* text : {"a", "bb", "ccc"}) send(bytes_of(text), bytes_of("!"));
  ASSERT_TRUE(eventually([&] { return pump(), arrived_[1].size() == 3; }));
  EXPECT_EQ(arrived_[1], (Texts{"a!", "bb!", "ccc!"}));
}

TEST_F(MpiClient, AcksMakeRoomInTheWindow) {
  connect();
  send({}, bytes_of(std::string(900, 'x')));
  EXPECT_FALSE(member(0).carries(1, 100));
  EXPECT_TRUE(eventually([&] { return pump(), member(0).carries(1, 100); }));
}

TEST_F(MpiClient, MessagesThatTheCarriersLoseAreReturnedOnceAndNoOthers) {
  connect();
  send({}, bytes_of("arrives"));
  ASSERT_TRUE(eventually([&] { return pump(), arrived_[1].size() == 1; }));
  send({}, bytes_of("is lost"));
  send({}, bytes_of("too"));
  ASSERT_TRUE(eventually([&] {
    pump(/*loses=*/true);
    return member(0).awaited().events == POLLIN;  // both are with the carrier
  }));
  hosts_[0].socket.reset();
  ASSERT_TRUE(eventually([&] { return pump(), returned_[0].size() == 2; }));
  EXPECT_EQ(returned_[0], (Texts{"is lost", "too"}));
  EXPECT_EQ(arrived_[1], (Texts{"arrives"}));
  EXPECT_FALSE(member(0).carries(1, 1));
}

TEST_F(MpiClient, AMessageThatArrivedWithoutItsAckIsNotReturned) {
  connect();
  send({}, bytes_of("arrives"));
  ASSERT_TRUE(eventually([&] {
    Frame frame;
    return hosts_[0].reader.next(hosts_[0].socket.get(), &frame) == FrameReader::Read::kFrame &&
           frame.header.kind == FrameKind::kData &&
           (hosts_[1].writer.put(make_frame(frame.header, {frame.bytes.get(), frame.header.bytes})),
            true);
  }));
  ASSERT_TRUE(hosts_[1].writer.flush(hosts_[1].socket.get()).ok());
  ASSERT_TRUE(eventually([&] { return member(1).progress(); }));
  hosts_[0].socket.reset();
  ASSERT_TRUE(eventually([&] {
    pump();
    return failed_[1];
  }));
  pump();  // the answer
  EXPECT_EQ(arrived_[1], (Texts{"arrives"}));
  EXPECT_EQ(returned_[0], Texts());
}

TEST_F(MpiClient, TheEndOfOneCarrierIsThatOfTheOther) {
  connect();
  hosts_[0].socket.reset();
  ASSERT_TRUE(eventually([&] { return pump(), failed_[1]; }));
  EXPECT_FALSE(member(1).carries(0, 1));
  EXPECT_FALSE(member(1).awaited().fd >= 0);
}

// Else an operation would return, and its last messages would wait until the member makes another
// call.
TEST_F(MpiClient, AMessageHasPassedOnceTheSocketHasTakenIt) {
  connect();
  const std::uint64_t number = send({}, bytes_of(std::string(4 << 20, 'x')));
  EXPECT_LT(member(0).passed(), number);
  EXPECT_TRUE(member(0).holds(1));
  ASSERT_TRUE(eventually([&] { return pump(), member(0).passed() >= number; }));
  ASSERT_TRUE(eventually([&] { return pump(), !member(0).holds(1); }));
}

TEST_F(MpiClient, AMessageThatTheMeshTakesBackHasPassed) {
  connect();
  const std::uint64_t number = send({}, bytes_of(std::string(4 << 20, 'x')));
  hosts_[0].socket.reset();
  static_cast<void>(member(0).progress());
  EXPECT_LT(member(0).passed(), number);
  ASSERT_TRUE(eventually([&] { return pump(), returned_[0].size() == 1; }));
  EXPECT_GE(member(0).passed(), number);
  EXPECT_FALSE(member(0).holds(1));
}

TEST_F(MpiClient, OnlyTheMemberThatLearnsItFirstSaysWhyTheCarrierIsLost) {
  connect();
  hosts_[0].writer.put(make_frame({.kind = FrameKind::kFail}, bytes_of("a reason")));
  ASSERT_TRUE(eventually([&] { return pump(), failed_[1]; }));
  ASSERT_TRUE(eventually([&] { return pump(), !lost_[0].empty(); }));
  EXPECT_EQ(lost_[0], Texts{"a reason"});
  EXPECT_EQ(lost_[1], Texts{});
}

TEST_F(MpiClient, ACarrierThatEndsSilentlyIsLost) {
  connect();
  hosts_[1].socket.reset();
  ASSERT_TRUE(eventually([&] { return pump(), failed_[0]; }));
  EXPECT_EQ(lost_[1], Texts{}) << "that of a member would end it, too";
  ASSERT_TRUE(eventually([&] { return pump(), !lost_[1].empty(); }));
  EXPECT_EQ(lost_[1], Texts{"regroup-mpi has ended"});
}

// It is stopped, or stuck in the MPI. What it has taken goes over the mesh.
TEST_F(MpiClientWithShortLimits, ACarrierThatDoesNotAnswerIsLostAndKilled) {
  connect();
  make_processes();
  answers_ = false;
  send({}, bytes_of("is lost"));
  ASSERT_TRUE(eventually([&] { return pump(/*loses=*/true), returned_[0].size() == 1; }));
  ASSERT_TRUE(eventually([&] {
    pump(/*loses=*/true);
    return !lost_[0].empty() || !lost_[1].empty();
  }));
  const std::string why = lost_[lost_[0].empty() ? 1 : 0].front();
  EXPECT_TRUE(why.ends_with("has not answered for 0.2 s: it is stopped, or stuck in the MPI"))
      << why;
  ASSERT_TRUE(eventually([&] { return pump(), is_dead(0) && is_dead(1); }));
}

TEST_F(MpiClientWithShortLimits, ACarrierThatAnswersMayBringNothing) {
  connect();
  ASSERT_TRUE(eventually([&] { return pump(), answered_ > 20; }));
  EXPECT_TRUE(member(0).carries(1, 1));
}

TEST_F(MpiClientWithAShortStart, AnMpiThatDoesNotStartIsLost) {
  ASSERT_TRUE(eventually([&] { return pump(), !lost_[0].empty() || !lost_[1].empty(); }));
  EXPECT_EQ(lost_[lost_[0].empty() ? 1 : 0].front(), "MPI has not connected the hosts for 0.3 s");
}

class MpiClientThatComputes : public MpiClient {
 protected:
  MpiClientThatComputes() { limits_.answer = std::chrono::milliseconds(1600); }
};

// Each look counts as half a second at most.
TEST_F(MpiClientThatComputes, DoesNotCountTheTimeInWhichItDoesNotWait) {
  connect();
  answers_ = false;
  for (int look = 0; look < 3; ++look) {  // the first sends a probe
    std::this_thread::sleep_for(std::chrono::milliseconds(900));
    pump();
  }
  EXPECT_TRUE(member(0).carries(1, 1));
}

// A member that has not connected yet gets no end of the socket.
TEST(MpiClientAlone, ALeaderTellsTheMembersOfItsHostAndTheOtherLeadersOfTheEnd) {
  Client leader({.rank = 1, .host_of = {0, 1, 1, 0, 2, 2}, .socket = "regroup-test-none"});
  leader.fail("");
  std::vector<int> told;
  while (const auto note = leader.note()) told.push_back(note->to);
  EXPECT_EQ(told, (std::vector<int>{0, 2, 4}));
}

// The carrier process ends if a member goes without it.
TEST_F(MpiClient, ClosingSaysBye) {
  connect();
  member(0).close(/*revoked=*/false);
  Frame frame;
  FrameKind last{};
  ASSERT_TRUE(eventually([&] {
    const auto read = hosts_[0].reader.next(hosts_[0].socket.get(), &frame);
    if (read == FrameReader::Read::kFrame) last = frame.header.kind;
    return read == FrameReader::Read::kEnd;
  }));
  EXPECT_EQ(last, FrameKind::kBye);
}

TEST_F(MpiClient, ClosingHandsOverWhatWasTaken) {
  connect();
  send({}, bytes_of("last"));
  member(0).close(/*revoked=*/false);
  ASSERT_TRUE(eventually([&] { return pump(), arrived_[1].size() == 1; }));
}

}  // namespace
}  // namespace regroup::collective::mpi
