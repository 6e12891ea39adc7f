// The functions that libpmix calls in its host.
#pragma once

#include <pmix_server.h>

namespace regroup::pmi {

struct PmixState;

// They serve `server`, which outlives libpmix's use of the table; nullptr: all are refused.
[[nodiscard]] pmix_server_module_t pmix_calls(PmixState* server);

}  // namespace regroup::pmi
