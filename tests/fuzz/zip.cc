// Any bytes as an archive, as .npz and .pt files are: refused with a reason, or its members lie in
// it, none over another.
#include "tools/checkpoint/zip.h"

#include <cstdint>

#include "tests/fuzz/require.h"

using namespace regroup;
using regroup::fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto archive = std::as_bytes(std::span(data, size));
  const auto members = checkpoint_tool::read_zip(archive, "a.zip");
  if (!members.ok()) {
    require(!members.status().message().empty());
    return 0;
  }
  std::size_t bytes = 0;
  for (const checkpoint_tool::ZipMember& member : *members) {
    bytes += member.bytes.size();
    if (member.bytes.empty()) continue;
    require(member.bytes.data() >= archive.data() &&
            member.bytes.data() + member.bytes.size() <= archive.data() + size);
  }
  require(bytes <= size);
  return 0;
}
