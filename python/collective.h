// The table of python/regroup/_torch/collective_v1.h.
#pragma once

struct regroup_collective_v1;

namespace regroup::python {

// Static; each function of it may be called by any thread, without the GIL.
[[nodiscard]] const regroup_collective_v1* collective_v1();

}  // namespace regroup::python
