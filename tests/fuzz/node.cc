// Bytes of an agent, or of a controller: whatever they are, they are refused or they are a message
// that survives.
#include <cstdint>
#include <span>

#include "launcher/agent/wire.h"
#include "membership/catchup/transfer_messages.h"
#include "tests/fuzz/require.h"

using namespace regroup::agent;
using namespace regroup::catchup;
using namespace regroup::spec;
using regroup::fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (const auto transfer = decode_transfer(std::as_bytes(std::span(data, size))); transfer.ok()) {
    const auto again = decode_transfer(encode(*transfer));
    require(again.ok() && encode(*again) == encode(*transfer));
  }
  const auto message = decode(std::as_bytes(std::span(data, size)));
  if (!message.ok()) return 0;
  const auto again = decode(encode(*message));
  require(again.ok() && again->index() == message->index() && encode(*again) == encode(*message));
  if (const auto* start = std::get_if<StartSpace>(&*message)) {
    for (const auto& member : start->order.members) {
      if (member.place.space == start->order.space.space)
        static_cast<void>(start->order.space.here(member.place.rank));
    }
  }
  return 0;
}
