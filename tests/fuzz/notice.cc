// Any bytes as the answer of a file, a command or a metadata address: refused or understood.
#include <cstdint>
#include <string_view>

#include "launcher/notice/http.h"
#include "launcher/notice/notice.h"
#include "tests/fuzz/require.h"

using namespace regroup;
using regroup::fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto notice = launcher::parse_notice(bytes, 1'795'379'400);
  require(notice.ok() || !notice.status().message().empty());
  if (notice.ok() && *notice && (*notice)->within) require(*(*notice)->within >= core::Duration::zero());
  if (notice.ok() && *notice) static_cast<void>(launcher::is_for(**notice, "n1.example.org"));
  static_cast<void>(launcher::parse_http_address(bytes));
  return 0;
}
