// Bytes of control messages and of Worlds: whatever comes, it is refused or decoded, and what was
// decoded makes sense and survives a round trip. The input is taken as a payload, as a World and as
// a stream of frames cut in two.
#include "proto/wire.h"

#include <cstdint>
#include <cstring>

#include "tests/fuzz/require.h"

using namespace regroup::base;
using namespace regroup::proto;
using regroup::fuzz::require;

namespace {

// Members and plan do for training what their readers count on.
void require_usable(const World& world) {
  require(world.size() > 0 && world.plan.size() == world.shards && world.shards <= kMaxShards);
  for (int rank = 0; rank < static_cast<int>(world.size()); ++rank) {
    require(world.rank_of(world.members[rank].slot_id) == rank &&
            world.rank_of(world.members[rank].id) == rank);
    require(world.members[rank].slot_id.slot < kMaxSlots);
  }
  for (const SlotId& slot_id : owners_of(world, world.resume.step() + 2))
    require(world.rank_of(slot_id) >= 0);
}

void one_payload(std::span<const std::byte> bytes) {
  // The verifier wants aligned memory: FrameReader and the arena's reader give it that.
  const std::vector<std::byte> payload(bytes.begin(), bytes.end());
  if (auto message = decode(payload); message.ok()) {
    const auto frame = encode(*message);
    require(decode(std::span(frame).subspan(sizeof(std::uint32_t))).ok());
    if (const auto* announce = std::get_if<Announce>(&message->body))
      require_usable(*announce->world);
  }
  if (auto world = decode_world(payload); world.ok()) {
    require(decode_world(encode_world(*world)).ok());
    require_usable(*world);
  }
}

void one_stream(std::span<const std::byte> bytes) {
  FrameReader reader;
  const std::size_t cut = bytes.size() / 3;
  for (const auto part : {bytes.first(cut), bytes.subspan(cut)}) {
    reader.append(part);
    for (;;) {
      auto message = reader.next();
      if (!message.ok()) require(reader.next().status().message() == message.status().message());
      if (!message.ok() || !message->has_value()) break;
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes{reinterpret_cast<const std::byte*>(data), size};
  one_payload(bytes);
  one_stream(bytes);
  if (size >= sizeof(std::uint32_t))
    one_payload(bytes.subspan(sizeof(std::uint32_t)));  // of a golden frame
  return 0;
}
