// Reading ahead: what is not in the page cache comes there before anybody reads it.
#include "checkpoint/file_io.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

namespace regroup::checkpoint {
namespace {

constexpr std::size_t kBytes = 12 << 20, kPage = 4096;

// Pages of the open file that are in the page cache.
std::size_t cached(int fd) {
  void* const at = ::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, fd, 0);
  std::vector<unsigned char> pages(kBytes / kPage);
  const bool asked = at != MAP_FAILED && ::mincore(at, kBytes, pages.data()) == 0;
  ::munmap(at, kBytes);
  return asked ? static_cast<std::size_t>(
                     std::ranges::count_if(pages, [](auto p) { return (p & 1) != 0; }))
               : 0;
}

TEST(ReadAhead, ReadsMissingPagesAlsoAfterCachedOnes) {
  std::string name = (std::filesystem::temp_directory_path() / "ahead-XXXXXX").string();
  const base::Fd fd(::mkstemp(name.data()));
  ASSERT_TRUE(fd.valid());
  std::filesystem::remove(name);
  const std::vector<std::byte> bytes(kBytes, std::byte{7});
  ASSERT_TRUE(write_at(fd.get(), 0, bytes, name).ok());
  ASSERT_TRUE(sync(fd.get(), name).ok());
  // All but the first page: a part that is there in part only.
  ASSERT_EQ(::posix_fadvise(fd.get(), kPage, 0, POSIX_FADV_DONTNEED), 0);
  if (cached(fd.get()) > kBytes / kPage / 2)
    GTEST_SKIP() << "this file system has nothing but a cache";
  ReadAhead(fd.get(), kBytes).reached(0);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (cached(fd.get()) < kBytes / kPage && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(cached(fd.get()), kBytes / kPage);
}

}  // namespace
}  // namespace regroup::checkpoint
