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

struct FileHead {
  std::uint32_t magic = 0x4a524752;  // "RGRJ"
  std::uint32_t version = 1;
};

// Its CRC is apart from that of the World: a length that is damaged must not look like a World that is torn.
struct RecordHead {
  std::uint32_t bytes = 0;
  std::uint32_t bytes_crc = 0;
  std::uint32_t crc = 0;
};

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

core::Status damaged(const std::string& path, std::size_t at, const char* what) {
  return {core::Code::kDataLoss, fmt::format("journal {}: damaged at byte {}: {}", path, at, what)};
}

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

core::Status check_file_head(std::span<const std::byte> all, const std::string& path) {
  FileHead head;
  std::memcpy(&head, all.data(), sizeof head);
  if (head.magic != FileHead{}.magic) return damaged(path, 0, "it is no journal");
  if (head.version == FileHead{}.version) return {};
  return core::invalid_argument(
      fmt::format("journal {}: of version {}, {} is known", path, head.version, FileHead{}.version));
}

struct Contents {
  std::size_t whole = 0;  // bytes, up to where the file was torn
  std::optional<core::World> newest;
};

core::Result<Contents> parse(std::span<const std::byte> all, const std::string& path) {
  Contents out;
  if (all.size() < sizeof(FileHead)) return out;
  REGROUP_RETURN_IF_ERROR(check_file_head(all, path));
  out.whole = sizeof(FileHead);
  for (RecordHead head; all.size() - out.whole >= sizeof head; out.whole += sizeof head + head.bytes) {
    std::memcpy(&head, all.data() + out.whole, sizeof head);
    if (core::crc32c(bytes_of(head.bytes)) != head.bytes_crc || head.bytes > core::kMaxFrameBytes) {
      return damaged(path, out.whole, "the length of a World");
    }
    const auto rest = all.subspan(out.whole + sizeof head);
    if (rest.size() < head.bytes) break;
    const auto body = rest.first(head.bytes);
    if (core::crc32c(body) != head.crc) return damaged(path, out.whole, "a World");
    auto world = core::decode_world(std::vector(body.begin(), body.end()));
    if (!world.ok()) return world.status();
    out.newest = std::move(*world);
  }
  return out;
}

}  // namespace

core::Result<JournalFile> JournalFile::open(const std::string& path) {
  JournalFile out;
  out.path_ = path;
  out.fd_.reset(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!out.fd_.valid()) return core::system_error("open", path, errno);
  auto all = read_all(out.fd_.get(), path);
  if (!all.ok()) return all.status();
  auto contents = parse(*all, path);
  if (!contents.ok()) return contents.status();
  out.newest_ = std::move(contents->newest);
  if (contents->whole < all->size() && ::ftruncate(out.fd_.get(), static_cast<off_t>(contents->whole)) != 0) {
    return core::system_error("ftruncate", path, errno);
  }
  if (contents->whole == 0) REGROUP_RETURN_IF_ERROR(write_all(out.fd_.get(), bytes_of(FileHead{}), path));
  return out;
}

core::Status JournalFile::append(const core::World& world) {
  const std::vector<std::byte> body = core::encode_world(world);
  if (body.size() > core::kMaxFrameBytes) {
    return core::invalid_argument(fmt::format("journal {}: a World of {} bytes", path_, body.size()));
  }
  const auto size = static_cast<std::uint32_t>(body.size());
  const RecordHead head{size, core::crc32c(bytes_of(size)), core::crc32c(body)};
  const auto head_bytes = bytes_of(head);
  std::vector<std::byte> record(head_bytes.begin(), head_bytes.end());
  record.insert(record.end(), body.begin(), body.end());
  REGROUP_RETURN_IF_ERROR(write_all(fd_.get(), record, path_));
  return ::fdatasync(fd_.get()) == 0 ? core::Status() : core::system_error("fdatasync", path_, errno);
}

}  // namespace regroup::cmd
