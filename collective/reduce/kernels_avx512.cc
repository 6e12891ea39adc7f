// The kernels for a processor that has AVX-512 F, BW, DQ and VL: see collective/CMakeLists.txt for
// the flags.
#define REGROUP_KERNELS kKernelsAvx512
#include "collective/reduce/kernels.inc"
