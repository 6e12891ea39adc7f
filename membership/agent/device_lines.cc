// A line in a slot is void for members once the slot has another owner: in_slots() names each slot
// once, since move_to() takes the slot from the line that had it.
#include "membership/agent/device_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/printable.h"

namespace regroup::membership {
namespace {

// "5.2 GB".
std::string sized(std::uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits{"bytes", "kB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1000 && unit + 1 < kUnits.size(); ++unit) value /= 1000;
  return unit == 0 ? fmt::format("{} bytes", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace

proto::DeviceLine line_for(const proto::Join& join, std::uint32_t leaf_buffers) {
  proto::DeviceLine line;
  line.slot = proto::kNoSlot;
  line.gpu = join.gpu;
  line.leaf_bytes = join.elements * join.element_bytes;
  line.leaf_buffers = leaf_buffers;
  line.slice_bytes = line.leaf_bytes;
  line.bytes = line.needed();
  return line;
}

std::string not_enough(const proto::DeviceLine& line, std::uint32_t device, std::uint64_t free) {
  proto::DeviceLine least = line;
  least.leaf_buffers = 1;
  return fmt::format("GPU {}: {} of {} and a slice of {} wanted, {} free{}", device,
                     base::counted(line.leaf_buffers, "leaf buffer"), sized(line.leaf_bytes),
                     sized(line.slice_bytes), sized(free),
                     line.leaf_buffers == 1
                         ? ""
                         : fmt::format("; --device-memory 1 needs {}", sized(least.needed())));
}

bool DeviceLines::reuse(proto::MemberId id, const proto::DeviceLine& wanted,
                        const IsFree& is_free) {
  for (auto& [line, entry] : entries_) {
    const proto::DeviceLine& has = entry.line;
    const bool alike = has.gpu == wanted.gpu && has.leaf_bytes == wanted.leaf_bytes &&
                       has.leaf_buffers == wanted.leaf_buffers &&
                       has.slice_bytes == wanted.slice_bytes;
    if (!alike || !entry.created || !is_free(entry.owner)) continue;
    entry.owner = id;
    entry.line.slot = proto::kNoSlot;
    return true;
  }
  return false;
}

std::vector<proto::DeviceLineId> DeviceLines::drop_free(const proto::DeviceLine& wanted,
                                                        const IsFree& is_free) {
  std::vector<proto::DeviceLineId> dropped;
  for (const auto& [line, entry] : entries_) {
    if (entry.line.gpu == wanted.gpu && entry.created && is_free(entry.owner))
      dropped.push_back(line);
  }
  for (const proto::DeviceLineId line : dropped) entries_.erase(line);
  return dropped;
}

proto::DeviceLine DeviceLines::add(proto::MemberId id, proto::DeviceLine wanted) {
  wanted.line = ++last_;
  entries_[last_] = {wanted, id};
  return wanted;
}

std::optional<proto::MemberId> DeviceLines::created(proto::DeviceLineId line, std::uint64_t bytes) {
  const auto found = entries_.find(line);
  if (found == entries_.end() || found->second.created) return std::nullopt;
  found->second.created = true;
  found->second.line.bytes = bytes;
  return found->second.owner;
}

std::optional<DeviceLines::Lost> DeviceLines::failed(proto::DeviceLineId line) {
  const auto found = entries_.find(line);
  if (found == entries_.end() || found->second.created) return std::nullopt;
  Lost lost{std::move(found->second.line), found->second.owner};
  entries_.erase(found);
  return lost;
}

const proto::DeviceLine* DeviceLines::move_to(proto::MemberId id, proto::SlotIndex slot) {
  proto::DeviceLine* own = nullptr;
  for (auto& [line, entry] : entries_) {
    if (entry.owner == id) {
      own = &entry.line;
      own->slot = slot;
    } else if (entry.line.slot == slot) {
      entry.line.slot = proto::kNoSlot;
    }
  }
  return own;
}

void DeviceLines::drop_slots() {
  for (auto& [line, entry] : entries_) entry.line.slot = proto::kNoSlot;
}

const proto::DeviceLine* DeviceLines::of(proto::MemberId id) const {
  const auto found =
      std::ranges::find_if(entries_, [id](const auto& entry) { return entry.second.owner == id; });
  return found == entries_.end() ? nullptr : &found->second.line;
}

const proto::DeviceLine* DeviceLines::in_slot(proto::SlotIndex slot) const {
  const auto found = std::ranges::find_if(
      entries_, [slot](const auto& entry) { return entry.second.line.slot == slot; });
  return found == entries_.end() ? nullptr : &found->second.line;
}

std::vector<proto::DeviceLine> DeviceLines::in_slots() const {
  std::vector<proto::DeviceLine> lines;
  for (const auto& [line, entry] : entries_) {
    if (entry.line.slot != proto::kNoSlot) lines.push_back(entry.line);
  }
  return lines;
}

}  // namespace regroup::membership
