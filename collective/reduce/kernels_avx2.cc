// The kernels for a processor that has AVX2: see collective/CMakeLists.txt for the flags.
#define REGROUP_KERNELS kKernelsAvx2
#include "collective/reduce/kernels.inc"
