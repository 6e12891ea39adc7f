// Manifests, with the checksum made good so that the content is looked at: whatever comes, it is
// refused, or it makes sense and survives a round trip.
#include <cstdint>
#include <string>

#include <fmt/format.h>

#include "base/crc32c.h"
#include "checkpoint/manifest.h"
#include "tests/fuzz/require.h"

using namespace regroup;
using regroup::fuzz::require;

namespace {

void one(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  (void)checkpoint::parse_part(bytes, "PART");
  const auto manifest = checkpoint::parse_manifest(bytes, "MANIFEST");
  if (!manifest.ok()) return;
  require(checkpoint::check(*manifest).ok());
  const std::string again = checkpoint::encode(*manifest);
  const auto back = checkpoint::parse_manifest(std::as_bytes(std::span(again)), "MANIFEST");
  require(back.ok() && *back == *manifest);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kTrailer = 16;
  std::string text(reinterpret_cast<const char*>(data), size);
  one(text);
  text.resize(text.size() > kTrailer ? text.size() - kTrailer : 0);
  one(text + fmt::format("crc32c={:08x}\n", base::crc32c(std::as_bytes(std::span(text)))));
  return 0;
}
