// Any bytes as what an agent says of its members' usage, and of the ports that it holds: refused,
// or the same when it is said again.
#include <cstdint>
#include <string>
#include <string_view>

#include "launcher/job/port_pool.h"
#include "launcher/metrics/usage_text.h"
#include "tests/fuzz/require.h"

using namespace regroup;
using regroup::fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (const auto samples = metrics::usage_from_json(std::string(bytes)); samples.ok()) {
    const std::string again = metrics::usage_json(*samples);
    const auto same = metrics::usage_from_json(again);
    require(same.ok() && metrics::usage_json(*same) == again);
    require(!metrics::usage_csv(0, *samples).empty() || samples->empty());
  }
  if (const auto ports = job::ports_from_json(bytes); ports.ok())
    require(job::ports_from_json(job::ports_to_json(*ports)).value() == *ports);
  return 0;
}
