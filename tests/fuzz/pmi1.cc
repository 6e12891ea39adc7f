// Bytes of a PMI-1 client, read whole and cut in two: whatever they are, they are answered or
// refused.
#include <cstdint>
#include <string_view>

#include "tests/fuzz/require.h"
#include "tools/pmi/pmi1_group.h"
#include "tools/pmi/pmi1_wire.h"

using namespace regroup::pmi;
using regroup::fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  PublishedNames names;
  Pmi1Group group({"kvs", {1, 2}, 4, {}}, names);
  Pmi1Reader reader;
  std::uint32_t rank = 0;
  for (const std::string_view part : {bytes.substr(0, size / 2), bytes.substr(size / 2)}) {
    reader.append(part);
    for (;;) {
      const auto command = reader.next();
      if (!command.ok()) require(reader.next().status().message() == command.status().message());
      if (!command.ok() || !command->has_value()) break;
      for (const Effect& effect : group.on_command(rank, **command)) {
        if (const auto* answer = std::get_if<Answer>(&effect))
          require(answer->text.ends_with('\n'));
      }
      rank = (rank + 1) % group.size();
    }
  }
  return 0;
}
