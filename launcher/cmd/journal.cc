// Append and fdatasync.
#include "launcher/cmd/journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "core/crc32c.h"
#include "core/wire.h"

namespace regroup::cmd {
namespace {

struct RecordHead {
  std::uint32_t bytes = 0;
  std::uint32_t crc = 0;
};

core::Result<std::vector<std::byte>> read_all(int fd, const std::string& path) {
  std::vector<std::byte> all;
  std::array<std::byte, 64 << 10> block;
  for (;;) {
    const ssize_t count = ::read(fd, block.data(), block.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return core::system_error("read", path, errno);
    if (count == 0) return all;
    all.insert(all.end(), block.begin(), block.begin() + count);
  }
}

core::Status write_all(int fd, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno != EINTR) return core::system_error("write", path, errno);
    if (count > 0) bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return {};
}

}  // namespace

core::Result<JournalFile> JournalFile::open(const std::string& path) {
  JournalFile out;
  out.path_ = path;
  out.fd_.reset(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!out.fd_.valid()) return core::system_error("open", path, errno);
  auto all = read_all(out.fd_.get(), path);
  if (!all.ok()) return all.status();
  std::size_t at = 0;
  for (RecordHead head; all->size() - at >= sizeof head; at += sizeof head + head.bytes) {
    std::memcpy(&head, all->data() + at, sizeof head);
    const std::size_t rest = all->size() - at - sizeof head;
    if (rest < head.bytes) break;
    const auto body = std::span(*all).subspan(at + sizeof head, head.bytes);
    const bool last = rest == head.bytes;
    if (core::crc32c(body) != head.crc) {
      if (last) break;
      return core::Status(core::Code::kDataLoss, fmt::format("journal {}: damaged at byte {}", path, at));
    }
    auto world = core::decode_world(std::vector(body.begin(), body.end()));
    if (!world.ok()) return world.status();
    out.newest_ = std::move(*world);
  }
  if (at < all->size() && ::ftruncate(out.fd_.get(), static_cast<off_t>(at)) != 0) {
    return core::system_error("ftruncate", path, errno);
  }
  return out;
}

core::Status JournalFile::append(const core::World& world) {
  const std::vector<std::byte> body = core::encode_world(world);
  const RecordHead head{static_cast<std::uint32_t>(body.size()), core::crc32c(body)};
  const auto head_bytes = std::as_bytes(std::span(&head, 1));
  std::vector<std::byte> record(head_bytes.begin(), head_bytes.end());
  record.insert(record.end(), body.begin(), body.end());
  REGROUP_RETURN_IF_ERROR(write_all(fd_.get(), record, path_));
  return ::fdatasync(fd_.get()) == 0 ? core::Status() : core::system_error("fdatasync", path_, errno);
}

}  // namespace regroup::cmd
