// What is common to all backends.
#include "collective/communicator.h"

namespace regroup::collective {

std::size_t size_of(Dtype dtype) { return dtype == Dtype::kFloat32 || dtype == Dtype::kInt32 ? 4 : 8; }

}  // namespace regroup::collective
