// Any bytes as a file of numpy.savez(), and as one array of it, which a CRC-32 guards in the
// archive: refused with a reason, or tensors of which a checkpoint can be written.
#include "tools/checkpoint/npz.h"

#include <cstdint>

#include "tests/fuzz/imported.h"
#include "tools/checkpoint/npy.h"

using namespace regroup;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  const auto arrays = checkpoint_tool::read_npz(file, "a.npz");
  if (arrays.ok()) fuzz::require_writable(arrays->pieces);
  if (!arrays.ok()) fuzz::require(!arrays.status().message().empty());
  for (const char* dtype : {"", "bfloat16", "float8_e5m2"}) {
    const auto array = checkpoint_tool::read_npy("a", file, dtype);
    if (array.ok())
      fuzz::require_writable({array->piece},
                             array->converted ? std::span<const std::byte>() : file);
    if (!array.ok()) fuzz::require(!array.status().message().empty());
  }
  return 0;
}
