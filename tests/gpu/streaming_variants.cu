// Shapes of the tree kernel that load and store as collective/cuda does: data is evicted first.
#define REGROUP_VARIANTS streaming_variants
#define REGROUP_SUFFIX ""
#include "tests/gpu/variants.inc"
