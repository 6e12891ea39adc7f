// Layout, creation and mapping of the arena. Serves docs/reference/formats/arena.md.
#include "shmem/arena.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "proto/wire.h"
#include "shmem/arena_layout.h"
#include "shmem/arena_tail.h"
#include "shmem/generation_fence.h"
#include "shmem/slot_owner.h"

namespace regroup::shmem {

using namespace arena_layout;
namespace {

constexpr std::uint64_t kMagic = 0x414e455241475252ULL;  // "RRGARENA"
constexpr std::uint32_t kVersion = 8;
// Builds with different member slots must not share an arena, even if kVersion was not raised.
constexpr std::uint32_t kSlotShape =
    sizeof(MemberSlot) ^ offsetof(MemberSlot, seals) << 8 ^ offsetof(MemberSlot, alive) << 16;

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(sizeof(Header) <= kPage &&
              sizeof(proto::SlotId) * proto::kMaxShards < proto::kMaxFrameBytes);

base::Status check(const ArenaSpec& s) {
  if (s.slots < 1 || s.slots > proto::kMaxSlots) {
    return base::invalid_argument(
        fmt::format("arena: {} members on a host, expected 1 to {}", s.slots, proto::kMaxSlots));
  }
  if (s.shards < 1 || s.shards > proto::kMaxShards) {
    return base::invalid_argument(
        fmt::format("arena: {} logical shards, expected 1 to {}", s.shards, proto::kMaxShards));
  }
  if (s.buffers_per_slot < 2 || s.buffers_per_slot > proto::kMaxBuffers ||
      (s.element_bytes != 4 && s.element_bytes != 8)) {
    return base::invalid_argument(
        fmt::format("arena: {} buffers of {}-byte elements", s.buffers_per_slot, s.element_bytes));
  }
  constexpr std::uint64_t kLargest = 1ULL << 44;
  if (s.elements > kLargest / s.element_bytes / (s.slots * s.buffers_per_slot + 2ULL) ||
      s.snapshot_bytes > kLargest || s.save_bytes > kLargest ||
      s.kept_results > proto::kMaxKeptResults) {
    return base::invalid_argument(
        fmt::format("arena: {} elements in each of {} buffers, {} bytes of state, {} bytes of "
                    "saves and {} results exceed the limits ({} bytes each, {} results)",
                    s.elements, s.slots * s.buffers_per_slot + 2ULL, s.snapshot_bytes, s.save_bytes,
                    s.kept_results, kLargest, proto::kMaxKeptResults));
  }
  return {};
}

}  // namespace

std::uint64_t arena_bytes(const ArenaSpec& spec) { return Layout(spec).end; }

base::Result<Arena> Arena::create(const ArenaSpec& spec) {
  REGROUP_RETURN_IF_ERROR(check(spec));
  base::Fd fd(::memfd_create("regroup-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return base::system_error("memfd_create", "regroup-arena", errno);
  Arena arena;
  arena.fd_ = std::move(fd);
  arena.spec_ = spec;
  REGROUP_RETURN_IF_ERROR(arena.reserve_head());
  const std::uint64_t bytes = arena_bytes(spec);
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, arena.memfd(), 0);
  if (base == MAP_FAILED)
    return base::system_error("mmap", fmt::format("arena of {} bytes", bytes), errno);
  // If a member could shorten the file, the others' accesses would raise SIGBUS. Growth is
  // harmless: add_tail().
  ::fcntl(arena.memfd(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL);
  arena.base_ = static_cast<std::byte*>(base);
  arena.bytes_ = bytes;
  auto* header = reinterpret_cast<Header*>(base);
  header->magic = kMagic;
  header->version = kVersion;
  header->slot_shape = kSlotShape;
  header->spec = spec;
  return arena;
}

base::Result<Arena> Arena::open(base::Fd memfd) {
  struct stat info {};
  if (::fstat(memfd.get(), &info) != 0) return base::system_error("fstat", "arena", errno);
  const auto bytes = static_cast<std::uint64_t>(info.st_size);
  if (bytes < kPage)
    return base::data_loss(
        fmt::format("arena: {} bytes do not begin with the header of an arena", bytes));
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd.get(), 0);
  if (base == MAP_FAILED)
    return base::system_error("mmap", fmt::format("arena of {} bytes", bytes), errno);
  Arena arena;
  arena.fd_ = std::move(memfd);
  arena.base_ = static_cast<std::byte*>(base);
  arena.bytes_ = bytes;
  const auto* header = reinterpret_cast<const Header*>(base);
  if (header->magic != kMagic || header->version != kVersion || header->slot_shape != kSlotShape) {
    return base::data_loss(
        fmt::format("arena: version {}, expected {}", header->version, kVersion));
  }
  arena.spec_ = header->spec;
  REGROUP_RETURN_IF_ERROR(check(arena.spec_));
  if (arena_bytes(arena.spec_) + header->tail != bytes) {
    return base::data_loss(fmt::format("arena: {} bytes, its header describes {}", bytes,
                                       arena_bytes(arena.spec_) + header->tail));
  }
  return arena;
}

base::Status add_tail(const Arena& arena, std::uint64_t bytes) {
  const std::uint64_t begin = arena_bytes(arena.spec());
  if (::ftruncate(arena.memfd(), static_cast<off_t>(begin + bytes)) != 0)
    return base::system_error("ftruncate", fmt::format("tail of {} bytes", bytes), errno);
  reinterpret_cast<Header*>(arena.at(0))->tail = bytes;
  return {};
}

std::span<std::byte> tail_of(const Arena& arena) {
  return {arena.at(arena_bytes(arena.spec())), reinterpret_cast<const Header*>(arena.at(0))->tail};
}

Arena::Arena(Arena&& other) noexcept
    : fd_(std::move(other.fd_)),
      spec_(other.spec_),
      base_(std::exchange(other.base_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      claimed_(std::exchange(other.claimed_, proto::kMaxSlots)) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(spec_, other.spec_);
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
  std::swap(claimed_, other.claimed_);
  return *this;
}

Arena::~Arena() {
  if (base_ == nullptr) return;
  // The kernel's list of this thread's robust locks points into the mapping while the lock is held.
  if (claimed_ != proto::kMaxSlots && !is_abandoned(member_slot(claimed_)) &&
      ::pthread_mutex_unlock(&member_slot(claimed_).alive) != 0)
    return;
  ::munmap(base_, bytes_);
}

MemberSlot& Arena::member_slot(proto::SlotIndex slot) const {
  assert(slot < spec_.slots);
  return reinterpret_cast<MemberSlot*>(at(Layout(spec_).slots))[slot];
}

std::span<std::byte> Arena::result(proto::Step step) const {
  const std::uint64_t parity = step % 2;
  return {at(Layout(spec_).results + parity * buffer_stride(spec_) + parity * kSkew),
          spec_.result_bytes()};
}

std::span<std::atomic<std::uint32_t>> Arena::result_blocks(proto::Step step) const {
  return {&result_generation(step) + 1, kResultBlocks};
}

std::atomic<std::uint32_t>& Arena::result_generation(proto::Step step) const {
  return *reinterpret_cast<std::atomic<std::uint32_t>*>(
      at(Layout(spec_).blocks + step % 2 * kPage));
}

std::span<std::byte> Arena::buffer(proto::SlotIndex slot, std::uint32_t index) const {
  assert(slot < spec_.slots && index < spec_.buffers_per_slot);
  const std::uint64_t n = static_cast<std::uint64_t>(slot) * spec_.buffers_per_slot + index;
  return {at(Layout(spec_).buffers + n * buffer_stride(spec_) + n % 16 * kSkew),
          spec_.result_bytes()};
}

std::span<std::byte> Arena::bounce_buffer(proto::SlotIndex slot) const {
  assert(slot < spec_.slots);
  return {at(Layout(spec_).bounce_buffers + slot * bounce_buffer_bytes(spec_.slots)),
          bounce_buffer_bytes(spec_.slots)};
}

std::optional<std::uint64_t> Arena::offset_of(std::span<const std::byte> data) const {
  // Compared as integers, because pointers into different objects have no order.
  const auto begin = reinterpret_cast<std::uintptr_t>(data.data());
  const auto base = reinterpret_cast<std::uintptr_t>(base_);
  if (begin < base || begin - base > bytes_ || data.size() > bytes_ - (begin - base))
    return std::nullopt;
  return begin - base;
}

std::span<std::byte> Arena::snapshot() const {
  return {at(Layout(spec_).snapshot), spec_.snapshot_bytes};
}

std::span<std::atomic<std::uint32_t>> Arena::snapshot_crcs() const {
  return {reinterpret_cast<std::atomic<std::uint32_t>*>(at(Layout(spec_).crcs)),
          snapshot_chunks(spec_)};
}

std::atomic<std::uint64_t>& Arena::snapshot_used() const {
  return reinterpret_cast<Header*>(base_)->snapshot_used;
}

std::atomic<std::uint64_t>& Arena::snapshot_at() const {
  return reinterpret_cast<Header*>(base_)->snapshot_at;
}

std::span<std::byte> Arena::save_area() const { return {at(Layout(spec_).save), spec_.save_bytes}; }

std::atomic<std::uint64_t>& Arena::save_word() const {
  return reinterpret_cast<Header*>(base_)->save;
}

std::byte* Arena::kept_entry(proto::Step step) const {
  assert(spec_.kept_results > 0);
  return at(Layout(spec_).kept_results + step % spec_.kept_results * kept_stride(spec_));
}

std::span<std::byte> Arena::kept_result(proto::Step step) const {
  return {kept_entry(step) + kPage + kept_crc_bytes(spec_), spec_.result_bytes()};
}

std::atomic<std::uint64_t>& Arena::kept_step(proto::Step step) const {
  return *reinterpret_cast<std::atomic<std::uint64_t>*>(kept_entry(step));
}

std::span<std::uint32_t> Arena::kept_crcs(proto::Step step) const {
  const std::uint64_t chunks = (spec_.result_bytes() + kSnapshotChunk - 1) / kSnapshotChunk;
  return {reinterpret_cast<std::uint32_t*>(kept_entry(step) + kPage), chunks};
}

base::Status Arena::publish_world(const proto::World& world) {
  const std::vector<std::byte> bytes = proto::encode_world(world);
  const std::uint64_t room = world_bytes(spec_) - sizeof(WorldSlot);
  if (bytes.size() > room) {
    return base::resource_exhausted(
        fmt::format("World {} takes {} bytes, {} are there", world.generation, bytes.size(), room));
  }
  std::byte* where = at(Layout(spec_).worlds + world.generation % kWorldSlots * world_bytes(spec_));
  auto* slot = reinterpret_cast<WorldSlot*>(where);
  auto* words = reinterpret_cast<std::atomic<std::uint64_t>*>(where + sizeof(WorldSlot));
  slot->generation.store(0, std::memory_order_seq_cst);
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, std::min<std::size_t>(8, bytes.size() - i));
    words[i / 8].store(word, std::memory_order_release);
  }
  slot->bytes.store(static_cast<std::uint32_t>(bytes.size()), std::memory_order_release);
  slot->generation.store(world.generation, std::memory_order_release);
  reinterpret_cast<Header*>(base_)->newest_world.store(world.generation, std::memory_order_release);
  return {};
}

proto::Generation Arena::newest_world() const {
  return reinterpret_cast<Header*>(base_)->newest_world.load(std::memory_order_acquire);
}

base::Result<proto::World> Arena::read_world(proto::Generation generation) const {
  const base::Status overwritten(base::Code::kUnavailable,
                                 fmt::format("World {} is no longer in the arena", generation));
  std::byte* where = at(Layout(spec_).worlds + generation % kWorldSlots * world_bytes(spec_));
  auto* slot = reinterpret_cast<WorldSlot*>(where);
  const auto* words =
      reinterpret_cast<const std::atomic<std::uint64_t>*>(where + sizeof(WorldSlot));
  // 0 stands for "being written".
  if (generation == 0 || slot->generation.load(std::memory_order_acquire) != generation)
    return overwritten;
  const std::uint32_t size = slot->bytes.load(std::memory_order_acquire);
  if (size > world_bytes(spec_) - sizeof(WorldSlot)) return overwritten;
  std::vector<std::byte> bytes((size + 7ULL) / 8 * 8);
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    const std::uint64_t word = words[i / 8].load(std::memory_order_acquire);
    std::memcpy(bytes.data() + i, &word, 8);
  }
  if (slot->generation.load(std::memory_order_acquire) != generation) return overwritten;
  auto world = proto::decode_world(std::span(bytes).first(size));
  if (!world.ok()) return world;
  const auto here = [&](const proto::SlotId& slot_id) {
    return slot_id.node != spec_.node || slot_id.slot < spec_.slots;
  };
  if (world->shards != spec_.shards || !std::all_of(world->plan.begin(), world->plan.end(), here) ||
      !std::all_of(world->members.begin(), world->members.end(),
                   [&](const proto::WorldMember& m) { return here(m.slot_id); })) {
    return base::data_loss(fmt::format(
        "World {} in the arena: {} shards, or a slot out of range; expected {} shards and slots "
        "below {}",
        generation, world->shards, spec_.shards, spec_.slots));
  }
  return world;
}

void Arena::assign_slot(proto::SlotIndex slot, proto::MemberId id) {
  MemberSlot& member = this->member_slot(slot);
  member.occupied.store(0, std::memory_order_seq_cst);
  member.state.store(0, std::memory_order_release);
  for (auto& seal : member.seals) seal.store(0, std::memory_order_release);
  member.on_device.store(0, std::memory_order_release);
  member.sums.slice.store(0, std::memory_order_release);
  member.sums.gathered.store(0, std::memory_order_release);
  for (Channel& channel : member.channels) {
    for (Channel::Arrival& arrival : channel.arrivals)
      arrival.word.store(0, std::memory_order_release);
    channel.instance.store(0, std::memory_order_release);
  }
  const proto::Generation newest = newest_world();
  leave_all_generations<RealPolicy>(member.left_generation);  // it is in no generation
  member.revoked_up_to.store(newest, std::memory_order_release);
  for (auto* word : {&member.dead, &member.finished, &member.leave_request, &member.donated,
                     &member.using_snapshot, &member.proved}) {
    word->store(0, std::memory_order_release);
  }
  for (auto* word : {&member.donated_step, &member.transfer, &member.replayed})
    word->store(0, std::memory_order_release);
  member.step.store(0, std::memory_order_relaxed);
  member.applied_at.store(0, std::memory_order_relaxed);
  member.loss.store(std::numeric_limits<double>::quiet_NaN(), std::memory_order_relaxed);
  pthread_mutexattr_t attributes;
  ::pthread_mutexattr_init(&attributes);
  ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  ::pthread_mutex_init(&member.alive, &attributes);
  ::pthread_mutexattr_destroy(&attributes);
  member.occupied.store(id + 1, std::memory_order_seq_cst);
}

base::Status Arena::claim_slot(proto::SlotIndex slot) {
  if (const int error = ::pthread_mutex_lock(&member_slot(slot).alive); error != 0) {
    return base::system_error("pthread_mutex_lock", fmt::format("arena slot {}", slot), error);
  }
  claimed_ = slot;
  return {};
}

void ring_all(const Arena& arena, proto::SlotIndex except) {
  for (proto::SlotIndex slot = 0; slot < arena.spec().slots; ++slot) {
    if (slot != except && arena.member_slot(slot).occupied.load(std::memory_order_acquire) != 0)
      ring(arena.member_slot(slot).bell);
  }
}

bool all_left_before(const Arena& arena, proto::Generation g) {
  for (proto::SlotIndex slot = 0; slot < arena.spec().slots; ++slot) {
    const MemberSlot& member = arena.member_slot(slot);
    if (member.has_living_member() && !has_left_before<RealPolicy>(member.left_generation, g))
      return false;
  }
  return true;
}

}  // namespace regroup::shmem
