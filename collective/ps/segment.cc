// Creation, checks and mapping of segments.
#include "collective/ps/segment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/memory_limit.h"

namespace regroup::collective::ps {
namespace {

base::Status reserve(int fd, std::uint64_t bytes) {
  constexpr std::uint64_t kMost = 16 << 20, kLeast = 1 << 20;
  std::uint64_t piece = kMost;
  for (std::uint64_t at = 0; at < bytes;) {
    const std::uint64_t size = std::min(piece, bytes - at);
    if (::fallocate(fd, 0, static_cast<off_t>(at), static_cast<off_t>(size)) == 0) {
      at += size;
    } else if (errno == EINTR) {  // the kernel undid the whole call
      piece = std::max(piece / 2, kLeast);
    } else {
      return base::resource_exhausted(fmt::format(
          "store segment: cannot reserve {} bytes: fallocate: {}", bytes, std::strerror(errno)));
    }
  }
  return {};
}

}  // namespace

base::Result<base::Fd> make_segment(std::uint64_t bytes) {
  if (bytes == 0 || bytes % kBlockBytes != 0 || bytes > kMaxStoreBytes) {
    return base::invalid_argument(
        fmt::format("store segment: expected a multiple of {} bytes, got {}", kBlockBytes, bytes));
  }
  if (const auto limit = base::memory_limit(); limit.ok() && limit->available < bytes) {
    return base::resource_exhausted(
        fmt::format("store segment: {} bytes requested, {} available ({})", bytes, limit->available,
                    limit->source));
  }
  base::Fd fd(::memfd_create("regroup-ps", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return base::system_error("memfd_create", "regroup-ps", errno);
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    return base::system_error("ftruncate", "regroup-ps", errno);
  REGROUP_RETURN_IF_ERROR(reserve(fd.get(), bytes));
  // If a server could change the size, other processes' accesses would raise SIGBUS.
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return base::system_error("fcntl(F_ADD_SEALS)", "regroup-ps", errno);
  return fd;
}

base::Result<StoreMemory> StoreMemory::open(int segment, std::uint32_t most, Mode mode) {
  struct stat info {};
  if (::fstat(segment, &info) != 0) return base::system_error("fstat", "store segment", errno);
  const auto bytes = static_cast<std::uint64_t>(info.st_size);
  if (bytes == 0 || bytes % kBlockBytes != 0 || most == 0 || bytes > kMaxStoreBytes / most) {
    return base::data_loss(fmt::format(
        "store segment: expected a multiple of {} bytes and at most {} in {} segments, got {}",
        kBlockBytes, kMaxStoreBytes, most, bytes));
  }
  void* base =
      ::mmap(nullptr, bytes * most, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED)
    return base::system_error("mmap", fmt::format("store of {} bytes", bytes * most), errno);
  StoreMemory memory;
  memory.base_ = static_cast<std::byte*>(base);
  memory.segment_bytes_ = bytes;
  memory.most_ = most;
  memory.mode_ = mode;
  REGROUP_RETURN_IF_ERROR(memory.add(segment));
  return memory;
}

base::Status StoreMemory::add(int segment) {
  if (segments_ == most_) {
    return base::resource_exhausted(
        fmt::format("store: it has its greatest number of segments, {}", most_));
  }
  struct stat info {};
  if (::fstat(segment, &info) != 0) return base::system_error("fstat", "store segment", errno);
  if (static_cast<std::uint64_t>(info.st_size) != segment_bytes_) {
    return base::data_loss(fmt::format("store segment {}: expected {} bytes, got {}", segments_,
                                       segment_bytes_, info.st_size));
  }
  const int seals = ::fcntl(segment, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return base::data_loss(fmt::format(
        "store segment {}: it is not a sealed memfd; expected one of make_segment()", segments_));
  }
  const int protection = mode_ == Mode::kWrite ? PROT_READ | PROT_WRITE : PROT_READ;
  if (::mmap(base_ + bytes(), segment_bytes_, protection, MAP_SHARED | MAP_FIXED, segment, 0) ==
      MAP_FAILED)
    return base::system_error("mmap", fmt::format("store segment {}", segments_), errno);
  ++segments_;
  return {};
}

StoreMemory::StoreMemory(StoreMemory&& other) noexcept { *this = std::move(other); }

StoreMemory& StoreMemory::operator=(StoreMemory&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(segment_bytes_, other.segment_bytes_);
  std::swap(segments_, other.segments_);
  std::swap(most_, other.most_);
  std::swap(mode_, other.mode_);
  return *this;
}

StoreMemory::~StoreMemory() {
  if (base_ != nullptr) ::munmap(base_, segment_bytes_ * most_);
}

}  // namespace regroup::collective::ps
