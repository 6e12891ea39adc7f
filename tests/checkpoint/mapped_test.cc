// An unreadable page of a mapped file becomes an error; other signals keep their handlers.
#include "checkpoint/mapped.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csetjmp>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/crc32c.h"
#include "checkpoint/file_io.h"

namespace regroup::checkpoint {
namespace {

constexpr std::size_t kMappedBytes = 3 << 20, kMappedPage = 4096;

class Mapped : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "mapped-XXXXXX").string();
    fd_ = base::Fd(::mkstemp(name.data()));
    ASSERT_TRUE(fd_.valid());
    std::filesystem::remove(name);
    std::mt19937 random(1);
    for (auto& byte : bytes_) byte = static_cast<std::byte>(random());
    fill();
  }
  void fill() { ASSERT_TRUE(write_at(fd_.get(), 0, bytes_, "the file").ok()); }
  void cut(std::size_t bytes) { ASSERT_EQ(::ftruncate(fd_.get(), static_cast<off_t>(bytes)), 0); }
  // Maps the whole file until the test ends.
  std::span<const std::byte> map() {
    void* const at = ::mmap(nullptr, kMappedBytes, PROT_READ, MAP_SHARED, fd_.get(), 0);
    EXPECT_NE(at, MAP_FAILED);
    return {static_cast<const std::byte*>(at), kMappedBytes};
  }

  base::Fd fd_;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(kMappedBytes);
};

TEST_F(Mapped, SumsWhatIsInThePageCache) {
  if (!in_page_cache(fd_.get(), 0, kMappedBytes))
    GTEST_SKIP() << "this kernel does not say what is there";
  const SigbusGuard guard;
  for (const std::size_t offset : {0UL, 1UL, 2048UL, 4096UL, 70001UL}) {
    for (const std::size_t bytes :
         {kMappedBytes - offset, kMappedBytes / 2, kMappedBytes / 3 + 7}) {
      EXPECT_EQ(sum_mapped(guard, fd_.get(), offset, bytes),
                base::crc32c(std::span(bytes_).subspan(offset, bytes)))
          << offset << " " << bytes;
    }
  }
}

TEST_F(Mapped, SumsNoUncachedPages) {
  const SigbusGuard guard;
  EXPECT_EQ(sum_mapped(guard, fd_.get(), 0, 2 * kMappedBytes), std::nullopt);
  cut(kMappedBytes / 2);
  EXPECT_EQ(sum_mapped(guard, fd_.get(), 0, kMappedBytes), std::nullopt);
  EXPECT_EQ(sum_mapped(guard, -1, 0, kMappedBytes), std::nullopt);
}

TEST_F(Mapped, DetectsAFileThatIsTruncatedDuringARead) {
  const auto mapping = map();
  const SigbusGuard guard;
  std::uint32_t crc = 0;
  const auto look = [&] { crc = base::crc32c(mapping); };
  EXPECT_TRUE(guard.try_read(mapping, look));
  EXPECT_EQ(crc, base::crc32c(bytes_));
  EXPECT_FALSE(guard.try_read(mapping, [&] {
    cut(kMappedPage);
    look();
  }));
  EXPECT_TRUE(guard.try_read(mapping, look));  // zeros by now, whatever becomes of the file
  fill();
  EXPECT_TRUE(guard.try_read(mapping, look));
  EXPECT_EQ(crc, base::crc32c(std::vector<std::byte>(kMappedBytes)));
}

TEST_F(Mapped, SumsByThreadsWhileTheFileChangesItsSize) {
  if (!in_page_cache(fd_.get(), 0, kMappedBytes))
    GTEST_SKIP() << "this kernel does not say what is there";
  const SigbusGuard guard;
  const std::uint32_t whole = base::crc32c(bytes_);
  std::atomic<int> cuts = 0, none = 0, wrong = 0;
  std::vector<std::jthread> threads;
  threads.emplace_back([&] {
    for (; cuts < 300; ++cuts) {
      cut(kMappedPage);
      fill();
    }
  });
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      while (cuts < 300) {
        const auto sum = sum_mapped(guard, fd_.get(), 0, kMappedBytes);
        none += sum ? 0 : 1;
        wrong += sum && *sum != whole ? 1 : 0;
      }
    });
  }
  threads.clear();
  EXPECT_GT(none, 0);
  EXPECT_EQ(wrong, 0);
}

sigjmp_buf g_back;

TEST_F(Mapped, PassesOtherSignalsToTheEarlierHandler) {
  struct sigaction own {
  }, before{};
  own.sa_handler = [](int) { ::siglongjmp(g_back, 1); };
  ASSERT_EQ(::sigaction(SIGBUS, &own, &before), 0);
  const auto mapping = map();
  volatile int met = 0;
  {
    const SigbusGuard guard;
    cut(kMappedPage);
    if (::sigsetjmp(g_back, 1) == 0) {  // outside a look
      const volatile std::byte* const beyond = mapping.data() + 2 * kMappedPage;
      (void)*beyond;
    } else {
      met = met + 1;
    }
    if (::sigsetjmp(g_back, 1) == 0) {
      (void)::raise(SIGBUS);
    } else {
      met = met + 1;
    }
  }
  struct sigaction now {};
  ASSERT_EQ(::sigaction(SIGBUS, &before, &now), 0);
  EXPECT_EQ(met, 2);
  EXPECT_EQ(now.sa_handler, own.sa_handler);
}

TEST_F(Mapped, AForeignSigbusEndsTheProcess) {
  const pid_t child = ::fork();
  if (child == 0) {
    (void)::signal(SIGBUS, SIG_DFL);
    const SigbusGuard guard;
    (void)::raise(SIGBUS);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS) << status;
}

}  // namespace
}  // namespace regroup::checkpoint
