// The parameter server's client for Python. Waits and copies release the GIL.
#pragma once

#include <nanobind/nanobind.h>

namespace regroup::python {

// Adds PsClient and PsMemory to the module.
void bind_ps(nanobind::module_& module);

}  // namespace regroup::python
