// The functions that libpmix calls in its host.
#pragma once

#include <pmix_server.h>

namespace regroup::pmi {

struct PmixState;

// The functions use `server`, which must outlive libpmix's use of the table; if it is null, they
// refuse every call.
[[nodiscard]] pmix_server_module_t pmix_calls(PmixState* server);

}  // namespace regroup::pmi
