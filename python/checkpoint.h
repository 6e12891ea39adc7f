// Checkpoints and fused optimizer steps for Python. They take memory of tensors and arrays, and
// report errors as exceptions.
#pragma once

#include <nanobind/nanobind.h>

namespace regroup::python {

// Adds Checkpoint, newest_checkpoint(), sgd_step() and adam_step() to the module.
void bind_checkpoint(nanobind::module_& module);

}  // namespace regroup::python
