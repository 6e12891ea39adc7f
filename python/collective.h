// Implements the table of python/regroup/_torch/collective_v1.h.
#pragma once

struct regroup_collective_v1;

namespace regroup::python {

// Returns a static table. Any thread may call its functions, without the GIL.
[[nodiscard]] const regroup_collective_v1* collective_v1();

}  // namespace regroup::python
