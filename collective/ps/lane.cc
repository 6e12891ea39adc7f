// Layout, checks and mapping of lanes.
#include "collective/ps/lane.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/printable.h"

namespace regroup::collective::ps {
namespace {

constexpr std::uint64_t kMagic = 0x53454e414c535052ULL;  // "RPSLANES"
constexpr std::uint32_t kVersion = 8;
constexpr std::uint64_t kPage = 4096;
constexpr std::uint32_t kMaxLanes = 1U << 16;
constexpr std::uint64_t kLeastLaneBytes = 64 << 10, kMostLaneBytes = 1ULL << 32;

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}
std::uint64_t lanes_at() { return round_up(sizeof(LanesHeader), kPage); }
std::uint64_t rings_at(const LaneSpec& spec) {
  return round_up(lanes_at() + spec.lanes * sizeof(Lane), kPage);
}
std::uint64_t size_of_lanes(const LaneSpec& spec) {
  return rings_at(spec) + spec.lanes * spec.lane_bytes;
}

base::Status check(const LaneSpec& spec) {
  if (spec.lanes >= 1 && spec.lanes <= kMaxLanes && spec.lane_bytes % kPage == 0 &&
      spec.lane_bytes >= kLeastLaneBytes && spec.lane_bytes <= kMostLaneBytes && spec.shards >= 1 &&
      spec.shard < spec.shards)
    return {};
  return base::invalid_argument(fmt::format(
      "lanes: expected 1 to {} lanes of {} to {} bytes, whole pages, and a shard below the number "
      "of shards, got {} lanes of {} bytes, shard {} of {}",
      kMaxLanes, kLeastLaneBytes, kMostLaneBytes, spec.lanes, spec.lane_bytes, spec.shard,
      spec.shards));
}

base::Status damaged(const char* what, std::uint64_t value) {
  return base::data_loss(fmt::format("lane: a message has {} {}", what, value));
}

PushView view_of(std::byte* message, std::span<const PushPart> parts) {
  PushView view;
  view.parts.reserve(parts.size());
  std::uint64_t at = kContentAt + parts.size_bytes();
  for (const PushPart& part : parts) {
    view.parts.push_back(
        {part.range, {reinterpret_cast<std::uint64_t*>(message + at), part.keys}, {}});
    at += part.keys * sizeof(std::uint64_t);
  }
  at = round_up(at, kMessageUnit);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    view.parts[i].gradients = {message + at, parts[i].gradient_bytes};
    at += round_up(parts[i].gradient_bytes, kMessageUnit);
  }
  return view;
}

}  // namespace

std::string name_of_client(const Lane& lane) {
  std::string name(lane.name.data(), ::strnlen(lane.name.data(), lane.name.size()));
  if (!name.empty()) return base::escaped(name);
  const std::uint64_t client = lane.client.load(std::memory_order_relaxed);
  return client == 0 ? "a client that has ended" : fmt::format("client {}", client - 1);
}

std::string host_of_client(const Lane& lane) {
  return base::escaped(
      std::string(lane.host.data(), ::strnlen(lane.host.data(), lane.host.size())));
}

OpenContent content_of(const TableSpec& spec) {
  OpenContent out{};
  out.rows = spec.rows;
  out.init = spec.init;
  out.optimizer = spec.optimizer;
  out.dim = spec.dim;
  out.kind = spec.kind;
  out.dtype = spec.dtype;
  out.part = spec.part;
  std::memcpy(out.name.data(), spec.name.data(), std::min(spec.name.size(), kMaxNameBytes));
  return out;
}

base::Result<TableSpec> spec_in(const OpenContent& content) {
  if (content.kind > TableKind::kHash || content.dtype > Dtype::kUint8 ||
      content.init.kind > InitialKind::kNormal || content.optimizer.kind > OptimizerKind::kFtrl ||
      content.name.back() != 0) {
    return base::invalid_argument("open: the lane has no table");
  }
  TableSpec spec{.name = content.name.data(),
                 .kind = content.kind,
                 .rows = content.rows,
                 .dim = content.dim,
                 .dtype = content.dtype,
                 .init = content.init,
                 .optimizer = content.optimizer,
                 .part = content.part};
  REGROUP_RETURN_IF_ERROR(ps::check(spec));
  return spec;
}

std::uint64_t bytes_of_push(std::span<const PushPart> parts) {
  std::uint64_t bytes = kContentAt + parts.size_bytes();
  for (const PushPart& part : parts) bytes += part.keys * sizeof(std::uint64_t);
  bytes = round_up(bytes, kMessageUnit);
  for (const PushPart& part : parts) bytes += round_up(part.gradient_bytes, kMessageUnit);
  return bytes;
}

PushView lay_out_push(std::byte* message, std::span<const PushPart> parts) {
  std::memcpy(message + kContentAt, parts.data(), parts.size_bytes());
  return view_of(message, parts);
}

base::Result<PushView> read_push(std::byte* message, const MessageHeader& header) {
  const std::uint64_t room = header.bytes - kContentAt;
  if (header.parts == 0 || header.parts > room / sizeof(PushPart))
    return damaged("parts:", header.parts);
  // A copy: what was checked must be what is used.
  std::vector<PushPart> parts(header.parts);
  std::memcpy(parts.data(), message + kContentAt, parts.size() * sizeof(PushPart));
  std::uint64_t keys = 0, gradients = 0;
  for (const PushPart& part : parts) {
    if (part.keys > room / sizeof(std::uint64_t) || part.gradient_bytes > room)
      return damaged("a part of bytes:", std::max(part.keys, part.gradient_bytes));
    keys += part.keys;
    gradients += part.gradient_bytes;
    if (keys > room / sizeof(std::uint64_t) || gradients > room)
      return damaged("parts of bytes:", std::max(keys, gradients));
  }
  if (bytes_of_push(parts) > header.bytes) return damaged("parts longer than it:", header.bytes);
  return view_of(message, parts);
}

base::Result<base::Fd> Lanes::make(const LaneSpec& spec) {
  REGROUP_RETURN_IF_ERROR(check(spec));
  constexpr const char* kName = "regroup-ps-lanes";
  base::Fd fd(::memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return base::system_error("memfd_create", kName, errno);
  const std::uint64_t bytes = size_of_lanes(spec);
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    return base::system_error("ftruncate", kName, errno);
  const std::uint64_t head = rings_at(spec);
  if (const int error = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(head)); error != 0)
    return base::system_error("fallocate", kName, error);
  // If a client could change the size, the server's accesses would raise SIGBUS.
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return base::system_error("fcntl(F_ADD_SEALS)", kName, errno);
  void* const base = ::mmap(nullptr, head, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) return base::system_error("mmap", kName, errno);
  auto* const header = new (base) LanesHeader{};
  header->version = kVersion;
  header->spec = spec;
  init_robust(header->attaching);
  init_robust(header->steps.hold);
  for (std::uint32_t i = 0; i < spec.lanes; ++i) {
    auto* const lane = new (static_cast<std::byte*>(base) + lanes_at() + i * sizeof(Lane)) Lane{};
    init_robust(lane->holder);
  }
  header->magic = kMagic;
  ::munmap(base, head);
  return fd;
}

base::Result<Lanes> Lanes::open(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return base::system_error("fstat", "lanes", errno);
  const auto bytes = static_cast<std::uint64_t>(info.st_size);
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || bytes < lanes_at())
    return base::data_loss("lanes: the descriptor is no sealed memfd of lanes");
  void* const base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return base::system_error("mmap", "lanes", errno);
  const auto& header = *static_cast<const LanesHeader*>(base);
  Lanes lanes(static_cast<std::byte*>(base), bytes, header.spec);
  if (header.magic != kMagic || header.version != kVersion) {
    return base::data_loss(fmt::format("lanes: expected version {}, got {}{}", kVersion,
                                       header.version,
                                       header.magic == kMagic ? "" : " and a wrong magic"));
  }
  if (!check(lanes.spec_).ok() || size_of_lanes(lanes.spec_) != bytes)
    return base::data_loss(fmt::format("lanes: their header does not fit their {} bytes", bytes));
  return lanes;
}

Lanes::Lanes(Lanes&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)), bytes_(other.bytes_), spec_(other.spec_) {}
Lanes::~Lanes() {
  if (base_ != nullptr) ::munmap(base_, bytes_);
}

Lane& Lanes::lane(std::uint32_t number) const {
  return *reinterpret_cast<Lane*>(base_ + lanes_at() + number * sizeof(Lane));
}
std::byte* Lanes::at(std::uint32_t lane, std::uint64_t place) const {
  return base_ + rings_at(spec_) + lane * spec_.lane_bytes + place % spec_.lane_bytes;
}

base::Result<MessageHeader> Lanes::check_message(std::uint32_t lane, std::uint64_t place,
                                                 std::uint64_t available) const {
  if (place % kMessageUnit != 0) return damaged("a place of bytes:", place);
  if (available < sizeof(MessageHeader) || available > spec_.lane_bytes)
    return damaged("bytes before the end of what is written:", available);
  MessageHeader header;
  std::memcpy(&header, at(lane, place), sizeof header);
  if (header.kind < MessageKind::kPad || header.kind > MessageKind::kLeafEnd)
    return damaged("kind", static_cast<std::uint64_t>(header.kind));
  const std::uint64_t least = header.kind == MessageKind::kPad    ? sizeof(MessageHeader)
                              : header.kind == MessageKind::kOpen ? kContentAt + sizeof(OpenContent)
                                                                  : kContentAt;
  if (header.bytes < least || header.bytes % kMessageUnit != 0 || header.bytes > available ||
      header.bytes > to_end(place))
    return damaged("bytes:", header.bytes);
  if (header.leaves > kMostLeaves || (header.leaves != 0 && header.leaf >= header.leaves))
    return damaged("a leaf:", header.leaf);
  if (header.kind == MessageKind::kLeafEnd && header.leaves == 0)
    return damaged("leaves:", header.leaves);
  return header;
}

}  // namespace regroup::collective::ps
