// Any bytes as the answer of a file, a command or a metadata address: refused or understood.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "launcher/notice/http.h"
#include "launcher/notice/notice.h"

using namespace regroup;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto notice = launcher::parse_notice(bytes, 1'795'379'400);
  if (!notice.ok() && notice.status().message().empty()) std::abort();
  if (notice.ok() && *notice && (*notice)->within && *(*notice)->within < core::Duration::zero())
    std::abort();
  if (notice.ok() && *notice) static_cast<void>(launcher::is_for(**notice, "n1.example.org"));
  static_cast<void>(launcher::parse_http_address(bytes));
  return 0;
}
