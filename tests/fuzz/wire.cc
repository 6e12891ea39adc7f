// Bytes of control messages and of Worlds: whatever comes, it is refused or decoded, and what was decoded
// survives a round trip. The input is taken as a payload, as a World and as a stream of frames cut in two.
#include "core/wire.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>

using namespace regroup::core;

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void one_payload(std::span<const std::byte> bytes) {
  // The verifier wants aligned memory: FrameReader and the arena's reader give it that.
  const std::vector<std::byte> payload(bytes.begin(), bytes.end());
  if (auto message = decode(payload); message.ok()) {
    const auto frame = encode(*message);
    require(decode(std::span(frame).subspan(sizeof(std::uint32_t))).ok());
  }
  if (auto world = decode_world(payload); world.ok()) require(decode_world(encode_world(*world)).ok());
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
  if (size >= sizeof(std::uint32_t)) one_payload(bytes.subspan(sizeof(std::uint32_t)));  // of a golden frame
  return 0;
}
