// Verifies by mapping: twice as fast as reading from the page cache. A page that the file does not have any
// more, or that the disk does not give, is SIGBUS: it is taken for damage of the block.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <csetjmp>
#include <csignal>
#include <filesystem>

#include "checkpoint/checkpoint.h"
#include "checkpoint/file_io.h"
#include "core/crc32c.h"

namespace regroup::checkpoint {
namespace {

using core::Code;
using core::Status;

constexpr std::size_t kMostFindings = 100;

// What the handler needs, which has no argument of ours: where to go on, and of which thread.
thread_local sigjmp_buf* on_bus_error = nullptr;

void bus_error(int) {
  if (on_bus_error != nullptr) siglongjmp(*on_bus_error, 1);
  ::signal(SIGBUS, SIG_DFL);  // another thread's own: its instruction runs again and ends the process
}

class BusErrors {
 public:
  BusErrors() {
    struct sigaction action {};
    action.sa_handler = bus_error;
    action.sa_flags = SA_NODEFER;
    ::sigaction(SIGBUS, &action, &before_);
  }
  ~BusErrors() { ::sigaction(SIGBUS, &before_, nullptr); }
  BusErrors(const BusErrors&) = delete;
  BusErrors& operator=(const BusErrors&) = delete;

 private:
  struct sigaction before_ {};
};

// Nothing if the bytes cannot be had.
std::optional<std::uint32_t> crc_of_mapped(std::span<const std::byte> bytes) {
  sigjmp_buf here;
  if (sigsetjmp(here, 1) != 0) {
    on_bus_error = nullptr;
    return std::nullopt;
  }
  on_bus_error = &here;
  const std::uint32_t crc = core::crc32c(bytes);
  on_bus_error = nullptr;
  return crc;
}

class Mapping {
 public:
  Mapping(int fd, std::uint64_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    base_ = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (base_ != MAP_FAILED) ::madvise(base_, bytes, MADV_SEQUENTIAL);
  }
  ~Mapping() {
    if (valid() && base_ != nullptr) ::munmap(base_, bytes_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  [[nodiscard]] bool valid() const { return base_ != MAP_FAILED; }
  [[nodiscard]] std::span<const std::byte> span() const {
    return {static_cast<const std::byte*>(base_), bytes_};
  }

 private:
  void* base_ = nullptr;
  std::uint64_t bytes_;
};

class Verifier {
 public:
  Verifier(const std::string& path, const Manifest& manifest, const OnProgress& on_progress)
      : path_(path), manifest_(manifest), on_progress_(on_progress), ranges_(manifest.files.size()) {
    for (const File& file : manifest.files) progress_.total += file.bytes;
    for (std::size_t i = 0; i < manifest.files.size(); ++i) {
      for (const Range& range : manifest.files[i].rest) ranges_[i].push_back(&range);
    }
    for (const Tensor& tensor : manifest.tensors) {
      for (const Piece& piece : tensor.pieces) ranges_[piece.file].push_back(&piece.range);
    }
  }

  Status run() {
    const BusErrors handled;
    for (std::size_t i = 0; i < manifest_.files.size(); ++i) REGROUP_RETURN_IF_ERROR(one_file(i));
    return findings_.empty() ? Status() : Status(Code::kDataLoss, fmt::format("{}", joined()));
  }

 private:
  Status one_file(std::size_t index) {
    const File& file = manifest_.files[index];
    const std::string path = path_ + "/" + file.name;
    auto fd = open_file(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW);
    if (!fd.ok()) return fd.status();
    const Mapping mapping(fd->get(), file.bytes);
    if (!mapping.valid()) return core::system_error("mmap", path, errno);
    auto& ranges = ranges_[index];
    std::ranges::sort(ranges, {}, [](const Range* range) { return range->offset; });
    for (const Range* range : ranges) {
      for (std::uint64_t block = 0; block < range->crcs.size(); ++block)
        one_block(path, mapping.span(), *range, block);
    }
    return {};
  }

  void one_block(const std::string& path, std::span<const std::byte> bytes, const Range& range,
                 std::uint64_t block) {
    const std::uint64_t begin = range.offset + block * kBlock;
    const std::uint64_t size = std::min(kBlock, range.bytes - block * kBlock);
    const auto crc = crc_of_mapped(bytes.subspan(begin, size));
    if (!crc) {
      find(fmt::format("{}: bytes {} to {} cannot be read", path, begin, begin + size));
    } else if (*crc != range.crcs[block]) {
      find(fmt::format("{}: bytes {} to {} have CRC32C {:08x}, {:08x} was written", path, begin, begin + size,
                       *crc, range.crcs[block]));
    }
    progress_.done += size;
    if (on_progress_) on_progress_(progress_);
  }

  void find(std::string what) {
    if (findings_.size() < kMostFindings) findings_.push_back(std::move(what));
  }
  [[nodiscard]] std::string joined() const {
    std::string out;
    for (const std::string& finding : findings_) out += (out.empty() ? "" : "\n") + finding;
    return out;
  }

  const std::string& path_;
  const Manifest& manifest_;
  const OnProgress& on_progress_;
  std::vector<std::vector<const Range*>> ranges_;  // of each file
  Progress progress_;
  std::vector<std::string> findings_;
};

}  // namespace

core::Status verify(const std::string& path, const OnProgress& on_progress) {
  auto checkpoint = Checkpoint::open(path);
  if (!checkpoint.ok()) return checkpoint.status();
  return Verifier(path, checkpoint->manifest(), on_progress).run();
}

}  // namespace regroup::checkpoint
