// Checkpoints and fused optimizer steps for Python: memory of tensors and arrays in, exceptions
// out.
#pragma once

#include <nanobind/nanobind.h>

namespace regroup::python {

// Adds Checkpoint, newest_checkpoint(), sgd_step() and adam_step() to the module.
void bind_checkpoint(nanobind::module_& module);

}  // namespace regroup::python
