// The kernels for any x86-64 or ARM64 processor: see collective/CMakeLists.txt for the flags.
#define REGROUP_KERNELS kKernelsBaseline
#include "collective/reduce/kernels.inc"
