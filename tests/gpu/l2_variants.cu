// Shapes of the tree kernel whose loads and stores use the L2 cache alone.
#include <cstdint>
#define __ldcs __ldcg
#define __stcs __stcg
#define REGROUP_VARIANTS l2_variants
#define REGROUP_SUFFIX " l2"
#include "tests/gpu/variants.inc"
