// Any bytes as the answer of a file, a command or a metadata address: refused or understood.
#include <cstdint>
#include <string_view>

#include "launcher/preempt/http.h"
#include "launcher/preempt/notice.h"
#include "tests/fuzz/require.h"

using namespace regroup;
using regroup::fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto notices = preempt::parse_notices(bytes, 1'795'379'400);
  require(notices.ok() || !notices.status().message().empty());
  for (std::size_t i = 0; notices.ok() && i < notices->size(); ++i) {
    const preempt::Notice& notice = (*notices)[i];
    if (notice.within) require(*notice.within >= base::Duration::zero());
    if (i > 0) require(preempt::time_left((*notices)[i - 1]) <= preempt::time_left(notice));
    static_cast<void>(preempt::is_for(notice, "n1.example.org", {"n1_1"}));
  }
  if (notices.ok()) static_cast<void>(preempt::gravest(*notices));
  static_cast<void>(preempt::parse_machine_names(bytes));
  static_cast<void>(preempt::parse_http_address(bytes));
  return 0;
}
