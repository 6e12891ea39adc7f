// Device memory as memory of the host.
#include "tests/fakes/cuda/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>

namespace regroup::fakes::cuda {
namespace {

constexpr int kSeals = F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL;
constexpr char kFileName[] = "regroup-fake-cuda:";  // the device's number follows

void* pointer(DevicePointer at) { return reinterpret_cast<void*>(at); }
DevicePointer address(const void* at) { return reinterpret_cast<DevicePointer>(at); }

bool is_granular(std::size_t value) { return value % kGranularity == 0; }

std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

// The entry that `at` lies in or behind: the last that does not begin after it.
template <class Map>
auto entry_before(Map& map, DevicePointer at) {
  auto next = map.upper_bound(at);
  return next == map.begin() ? map.end() : std::prev(next);
}

// Whether [at, at + bytes) has a byte in common with an entry of `map`, whose size `size` tells.
template <class Map, class Size>
bool overlaps(const Map& map, DevicePointer at, std::size_t bytes, const Size& size) {
  const auto before = entry_before(map, at + bytes - 1);
  return before != map.end() && before->first + size(before->second) > at;
}

int protection(int access) {
  if (access == kReadWrite) return PROT_READ | PROT_WRITE;
  return access == kReadOnly ? PROT_READ : PROT_NONE;
}

// The device in the name of a memfd of the fake; -1: it is none.
int device_of_file(int descriptor) {
  char path[64];
  char target[128] = {};
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
  if (::readlink(path, target, sizeof target - 1) < 0) return -1;
  int device = -1;
  return std::sscanf(target, "/memfd:regroup-fake-cuda:%d", &device) == 1 ? device : -1;
}

}  // namespace

DeviceMemory::~DeviceMemory() {
  if (counted_) Machine::running().give_back(device_, bytes_);
}

std::shared_ptr<DeviceMemory> DeviceMemory::create(DeviceIndex device, std::size_t bytes,
                                                   bool exportable, DriverResult& why) {
  why = kOutOfMemory;
  if (!Machine::running().take(device, bytes)) return nullptr;
  base::Fd file(::memfd_create((kFileName + std::to_string(device)).c_str(),
                               MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid() || ::ftruncate(file.get(), off_t(bytes)) != 0 ||
      ::fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) {
    Machine::running().give_back(device, bytes);
    return nullptr;
  }
  why = kSuccess;
  return std::make_shared<DeviceMemory>(std::move(file), device, bytes, exportable, true);
}

std::shared_ptr<DeviceMemory> DeviceMemory::import(int descriptor, DriverResult& why) {
  why = kInvalidValue;
  const int device = device_of_file(descriptor);
  struct stat facts = {};
  if (device < 0 || ::fcntl(descriptor, F_GET_SEALS) != kSeals || ::fstat(descriptor, &facts) != 0)
    return nullptr;
  if (!Machine::running().has(device)) {
    why = kInvalidDevice;
    return nullptr;
  }
  base::Fd file(::fcntl(descriptor, F_DUPFD_CLOEXEC, 3));
  if (!file.valid()) return nullptr;
  why = kSuccess;
  return std::make_shared<DeviceMemory>(std::move(file), device, std::size_t(facts.st_size), true,
                                        false);
}

Memory& memory() {
  static auto* all = new Memory;  // threads of the fake outlive static objects
  return *all;
}

// The end lies before a page that nobody may touch, so that work past the end fails.
DriverResult Memory::allocate(ContextState& context, std::size_t bytes, DevicePointer& out) {
  constexpr std::size_t kAlignment = 256, kPage = 4096;
  if (bytes == 0) return kInvalidValue;
  const auto page = std::size_t(::sysconf(_SC_PAGESIZE));
  Machine& machine = Machine::running();
  if (bytes > machine.settings.memory) return kOutOfMemory;
  const std::size_t inner = round_up(round_up(bytes, kAlignment), std::max(page, kPage));
  if (!machine.take(context.device, round_up(bytes, kAlignment))) return kOutOfMemory;
  const std::size_t whole = inner + 2 * page;
  void* base =
      ::mmap(nullptr, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    machine.give_back(context.device, round_up(bytes, kAlignment));
    return kOutOfMemory;
  }
  ::madvise(base, whole, MADV_DONTFORK);
  char* begin = static_cast<char*>(base) + page;
  ::mprotect(begin, inner, PROT_READ | PROT_WRITE);
  out = address(begin + inner - round_up(bytes, kAlignment));
  const std::unique_lock lock(mutex_);
  blocks_[out] = {round_up(bytes, kAlignment), base, whole, &context};
  return kSuccess;
}

void Memory::release(const Block& block) {
  ::munmap(block.base, block.whole);
  Machine::running().give_back(block.context->device, block.bytes);
}

DriverResult Memory::free(DevicePointer at) {
  const std::unique_lock lock(mutex_);
  const auto found = blocks_.find(at);
  if (found == blocks_.end()) return kInvalidValue;
  release(found->second);
  blocks_.erase(found);
  return kSuccess;
}

DriverResult Memory::add_registered(ContextState& context, const void* at, std::size_t bytes) {
  if (at == nullptr || bytes == 0) return kInvalidValue;
  const auto page = DevicePointer(::sysconf(_SC_PAGESIZE));
  const DevicePointer first = address(at) / page * page;
  const std::size_t pages = round_up(address(at) + bytes - first, page) / page;
  std::vector<unsigned char> resident(pages);
  if (::mincore(pointer(first), pages * page, resident.data()) != 0) return kInvalidValue;
  if (range_of(address(at), bytes, context.device).kind == Range::Kind::kDevice)
    return kInvalidValue;
  const std::unique_lock lock(mutex_);
  if (overlaps(registered_, address(at), bytes, [](const Registered& r) { return r.bytes; }))
    return kAlreadyRegistered;
  registered_[address(at)] = {bytes, &context};
  return kSuccess;
}

DriverResult Memory::remove_registered(const void* at) {
  const std::unique_lock lock(mutex_);
  return registered_.erase(address(at)) == 1 ? kSuccess : kNotRegistered;
}

Allocation Memory::add_handle(std::shared_ptr<DeviceMemory> memory) {
  const std::unique_lock lock(mutex_);
  handles_[++last_handle_] = std::move(memory);
  return last_handle_;
}

std::shared_ptr<DeviceMemory> Memory::find_handle(Allocation handle) {
  const std::shared_lock lock(mutex_);
  const auto found = handles_.find(handle);
  return found == handles_.end() ? nullptr : found->second;
}

DriverResult Memory::remove_handle(Allocation handle) {
  const std::unique_lock lock(mutex_);
  return handles_.erase(handle) == 1 ? kSuccess : kInvalidValue;
}

DriverResult Memory::reserve(std::size_t bytes, std::size_t alignment, DevicePointer wanted,
                             DevicePointer& out) {
  if (bytes == 0 || !is_granular(bytes) || !is_granular(wanted)) return kInvalidValue;
  if (alignment != 0 && !std::has_single_bit(alignment)) return kInvalidValue;
  const std::size_t unit = std::max(alignment, kGranularity);
  void* base = ::mmap(pointer(wanted), bytes + unit, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return kOutOfMemory;
  const DevicePointer whole = address(base);
  out = round_up(whole, unit);
  if (out != whole) ::munmap(base, out - whole);
  ::munmap(pointer(out + bytes), whole + unit - out);
  const std::unique_lock lock(mutex_);
  reservations_[out] = bytes;
  return kSuccess;
}

DriverResult Memory::free_reserved(DevicePointer at, std::size_t bytes) {
  const std::unique_lock lock(mutex_);
  const auto found = reservations_.find(at);
  if (found == reservations_.end() || found->second != bytes ||
      overlaps(mappings_, at, bytes, [](const Mapping& mapping) { return mapping.bytes; }))
    return kInvalidValue;
  reservations_.erase(found);
  ::munmap(pointer(at), bytes);
  return kSuccess;
}

bool Memory::is_reserved(DevicePointer at, std::size_t bytes) const {
  const auto found = entry_before(reservations_, at);
  return found != reservations_.end() && at + bytes <= found->first + found->second;
}

DriverResult Memory::map(DevicePointer at, std::size_t bytes, Allocation handle) {
  const std::unique_lock lock(mutex_);
  const auto found = handles_.find(handle);
  if (found == handles_.end() || bytes == 0 || !is_granular(at) || !is_granular(bytes) ||
      bytes > found->second->bytes() || !is_reserved(at, bytes) ||
      overlaps(mappings_, at, bytes, [](const Mapping& mapping) { return mapping.bytes; }))
    return kInvalidValue;
  if (::mmap(pointer(at), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, found->second->file(), 0) ==
      MAP_FAILED)
    return kOutOfMemory;
  ::madvise(pointer(at), bytes, MADV_DONTFORK);
  mappings_[at] = {bytes, found->second};
  return kSuccess;
}

std::pair<Memory::Mappings::iterator, Memory::Mappings::iterator> Memory::mappings_in(
    DevicePointer at, std::size_t bytes) {
  const auto first = mappings_.find(at);
  auto end = first;
  DevicePointer next = at;
  while (end != mappings_.end() && end->first == next && next < at + bytes)
    next += (end++)->second.bytes;
  if (bytes == 0 || next != at + bytes) return {mappings_.end(), mappings_.end()};
  return {first, end};
}

DriverResult Memory::unmap(DevicePointer at, std::size_t bytes) {
  const std::unique_lock lock(mutex_);
  const auto [first, end] = mappings_in(at, bytes);
  if (first == mappings_.end()) return kInvalidValue;
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  if (::mmap(pointer(at), bytes, PROT_NONE, kFlags, -1, 0) == MAP_FAILED) return kOutOfMemory;
  mappings_.erase(first, end);
  return kSuccess;
}

DriverResult Memory::set_access(DevicePointer at, std::size_t bytes, DeviceIndex device,
                                int access) {
  const std::unique_lock lock(mutex_);
  const auto [first, end] = mappings_in(at, bytes);
  if (first == mappings_.end()) return kInvalidValue;
  const bool peers = Machine::running().settings.peers;
  for (auto mapping = first; mapping != end; ++mapping)
    if (!peers && mapping->second.memory->device() != device) return kInvalidDevice;
  for (auto mapping = first; mapping != end; ++mapping) {
    auto& accesses = mapping->second.access;
    accesses[device] = access;
    // All devices touch memory at the same address here.
    if (::mprotect(pointer(mapping->first), mapping->second.bytes,
                   protection(*std::ranges::max_element(accesses))) != 0)
      return kOutOfMemory;
  }
  return kSuccess;
}

Range Memory::mapped_range(DevicePointer at, std::size_t bytes, DeviceIndex device) const {
  auto mapping = entry_before(mappings_, at);
  Range range{Range::Kind::kInvalid};
  if (mapping == mappings_.end() || mapping->first + mapping->second.bytes <= at) return range;
  range.device = mapping->second.memory->device();
  for (DevicePointer next = at; next < at + bytes; ++mapping) {
    if (mapping == mappings_.end() || mapping->first > next) return range;
    range.access = std::min(range.access, mapping->second.access[device]);
    next = mapping->first + mapping->second.bytes;
  }
  range.kind = Range::Kind::kDevice;
  return range;
}

Range Memory::range_of(DevicePointer at, std::size_t bytes, DeviceIndex device) {
  const std::shared_lock lock(mutex_);
  const auto block = entry_before(blocks_, at);
  if (block != blocks_.end() && at < block->first + block->second.bytes) {
    const bool inside = at + bytes <= block->first + block->second.bytes;
    return {inside ? Range::Kind::kDevice : Range::Kind::kInvalid, block->second.context->device};
  }
  if (is_reserved(at, 1)) return mapped_range(at, bytes, device);
  const auto entry = entry_before(registered_, at);
  if (entry != registered_.end() && at < entry->first + entry->second.bytes) {
    const bool inside = at + bytes <= entry->first + entry->second.bytes;
    return {inside ? Range::Kind::kRegistered : Range::Kind::kInvalid,
            entry->second.context->device};
  }
  return {};
}

void Memory::forget(const ContextState& context) {
  const std::unique_lock lock(mutex_);
  for (const auto& [at, block] : blocks_)
    if (block.context == &context) release(block);
  std::erase_if(blocks_, [&](const auto& entry) { return entry.second.context == &context; });
  std::erase_if(registered_, [&](const auto& entry) { return entry.second.context == &context; });
}

}  // namespace regroup::fakes::cuda
