// Any bytes as the environment and files of an allocator: refused or understood, and what is
// understood is consistent. The input is cut at each byte 0: the first part is what every file
// holds and every command prints, the rest are NAME=VALUE.
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/values.h"
#include "launcher/alloc/allocators.h"
#include "launcher/spec/host_list.h"
#include "tests/fuzz/require.h"

using namespace regroup;
using regroup::fuzz::require;

namespace {

void check(const alloc::Granted& granted, const alloc::AllocInput& input) {
  std::set<std::string> names;
  for (const alloc::Host& host : granted.reading.allocation.hosts) {
    require(!host.name.empty() && host.name.front() != '-' && names.insert(host.name).second);
    require(host.gpus.empty() || host.gpu_count == host.gpus.size());
  }
  require(!allocation_text(input, granted).empty() && !allocation_json(granted).empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::vector<std::string> parts = base::split(bytes, std::string_view("\0", 1));
  alloc::AllocInput input;
  input.host_name = "n1";
  input.read_file = [&](const std::string&) -> base::Result<std::string> { return parts[0]; };
  input.run = [&](const std::vector<std::string>&) -> base::Result<std::string> {
    return parts[0];
  };
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::size_t equals = parts[i].find('=');
    if (equals != std::string::npos)
      input.environment[parts[i].substr(0, equals)] = parts[i].substr(equals + 1);
  }
  for (const alloc::AllocatorRow& row : alloc::allocators()) {
    const auto granted = find_allocation(input, row.name);
    if (granted.ok()) check(*granted, input);
    if (!granted.ok()) require(!granted.status().message().empty());
  }
  static_cast<void>(alloc::read_resize_event(input));
  static_cast<void>(alloc::read_discovered(parts[0], "script", 1));
  static_cast<void>(spec::expand_host_list(parts[0], 1000));
  return 0;
}
