// The secret comes and goes in one piece, and is nowhere but in its page.
#include "launcher/transport/job_secret.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "tests/launcher/transport/net_test.h"

namespace regroup::transport {
namespace {

struct Pipe {
  Pipe() {
    std::array<int, 2> fds{};
    EXPECT_EQ(::pipe2(fds.data(), O_CLOEXEC | O_NONBLOCK), 0);
    read.reset(fds[0]);
    write.reset(fds[1]);
  }
  base::Fd read, write;
};

std::array<std::byte, JobSecret::kBytes> key_of(const JobSecret& secret, std::string_view purpose) {
  std::array<std::byte, JobSecret::kBytes> key{};
  EXPECT_TRUE(secret.derive(purpose, key).ok());
  return key;
}

TEST(JobSecret, ArrivesThroughAPipeAndLeavesTheRest) {
  const auto secret = new_secret();
  const Pipe pipe;
  ASSERT_TRUE(secret->write(pipe.write.get()).ok());
  ASSERT_EQ(::write(pipe.write.get(), "more", 4), 4);
  const auto got = JobSecret::read(pipe.read.get(), kDeadline);
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  EXPECT_EQ(key_of(**got, "a"), key_of(*secret, "a"));
  char rest[8];
  EXPECT_EQ(::read(pipe.read.get(), rest, sizeof rest), 4);
}

TEST(JobSecret, KeysDifferByPurposeAndSecret) {
  const auto secret = new_secret();
  EXPECT_NE(key_of(*secret, "a"), key_of(*secret, "b"));
  EXPECT_NE(key_of(*secret, "a"), key_of(*new_secret(), "a"));
}

TEST(JobSecret, RefusesWhatIsNone) {
  const Pipe pipe;
  const std::string text(JobSecret::kMessageBytes, 'x');
  ASSERT_EQ(::write(pipe.write.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  EXPECT_EQ(JobSecret::read(pipe.read.get(), kDeadline).code(), base::Code::kDataLoss);
}

TEST(JobSecret, SaysThatItCameShortOrNotAtAll) {
  Pipe pipe;
  EXPECT_EQ(JobSecret::read(pipe.read.get(), std::chrono::milliseconds(20)).code(),
            base::Code::kDeadlineExceeded);
  ASSERT_EQ(::write(pipe.write.get(), "regroup1half", 12), 12);
  pipe.write.reset();
  EXPECT_EQ(JobSecret::read(pipe.read.get(), kDeadline).code(), base::Code::kPeerLost);
}

TEST(JobSecret, DoesNotWaitForRoom) {
  const Pipe pipe;
  const std::vector<char> page(4096);
  while (::write(pipe.write.get(), page.data(), page.size()) > 0) {
  }
  EXPECT_EQ(new_secret()->write(pipe.write.get()).code(), base::Code::kUnavailable);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their shadows are endless

// The secret with every byte changed, so that looking for it does not put it anywhere.
class Masked {
 public:
  explicit Masked(const JobSecret& secret) {
    const Pipe pipe;
    EXPECT_TRUE(secret.write(pipe.write.get()).ok());
    char mark[8];
    EXPECT_EQ(::read(pipe.read.get(), mark, sizeof mark), 8);
    for (unsigned char& byte : masked_) {
      volatile unsigned char clear = 0;
      EXPECT_EQ(::read(pipe.read.get(), const_cast<unsigned char*>(&clear), 1), 1);
      byte = clear ^ kMask;
    }
  }
  // How often 16 bytes in a row of it stand in [begin, end).
  [[nodiscard]] int count(const unsigned char* begin, const unsigned char* end) const {
    int found = 0;
    for (const unsigned char* at = begin; at + kPart <= end; ++at) {
      at = static_cast<const unsigned char*>(
          std::memchr(at, masked_[0] ^ kMask, static_cast<std::size_t>(end - at)));
      if (at == nullptr || at + kPart > end) break;
      int same = 0;
      while (same < kPart && (at[same] ^ kMask) == masked_[same]) ++same;
      found += same == kPart ? 1 : 0;
    }
    return found;
  }

 private:
  static constexpr unsigned char kMask = 0xa5;
  static constexpr int kPart = 16;
  std::array<unsigned char, JobSecret::kBytes> masked_{};
};

struct Found {
  int dumped = 0, kept_back = 0;
};

Found look_for(const Masked& secret) {
  Found found;
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  std::uintptr_t begin = 0, end = 0;
  bool writable = false;
  while (std::getline(maps, line)) {
    std::uintptr_t from = 0, to = 0;
    char rights[5];
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &from, &to, rights) == 3) {
      begin = from, end = to, writable = std::strncmp(rights, "rw", 2) == 0;
    } else if (line.starts_with("VmFlags:") && writable) {
      const bool kept = line.find(" dd") != std::string::npos;
      (kept ? found.kept_back : found.dumped) +=
          secret.count(reinterpret_cast<const unsigned char*>(begin),
                       reinterpret_cast<const unsigned char*>(end));
    }
  }
  return found;
}

TEST(JobSecret, IsNowhereInMemoryThatIsDumped) {
  const auto secret = new_secret();
  const Masked masked(*secret);
  boost::asio::io_context loop;
  Server server(loop, node(secret, kServer));
  Client client(loop, node(secret, kClient), connect_to(server.listener.port()));
  client.channel->send({1, proto::Query{}});
  ASSERT_TRUE(run_until(loop, [&] { return !server.received.empty(); }));
  const Found open = look_for(masked);
  EXPECT_EQ(open.dumped, 0);
  EXPECT_EQ(open.kept_back, 1);
}

#endif

}  // namespace
}  // namespace regroup::transport
