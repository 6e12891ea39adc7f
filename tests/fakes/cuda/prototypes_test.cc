// The table's functions have the parameters that cuda.h says, where it is installed.
#include <cuda.h>

#include <type_traits>

#include "collective/cuda/driver.h"

namespace regroup::fakes::cuda {
namespace {

using namespace collective::cuda;  // NOLINT(google-build-using-namespace)

// The same to the calling convention: what differs is the name of the type.
template <class Ours, class Theirs>
constexpr bool is_same_kind() {
  if constexpr (std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>) {
    using A = std::remove_pointer_t<Ours>;
    using B = std::remove_pointer_t<Theirs>;
    return std::is_const_v<A> == std::is_const_v<B> && std::is_void_v<A> == std::is_void_v<B>;
  } else {
    return sizeof(Ours) == sizeof(Theirs) && std::is_pointer_v<Ours> == std::is_pointer_v<Theirs>;
  }
}

template <class... Ours, class... Theirs>
constexpr bool is_same_call(DriverResult (*)(Ours...), CUresult (*)(Theirs...)) {
  if constexpr (sizeof...(Ours) == sizeof...(Theirs))
    return (is_same_kind<Ours, Theirs>() && ...);
  else
    return false;
}

#define REGROUP_CUDA_COMPARE(member, symbol, ...)                                 \
  static_assert(is_same_call(static_cast<DriverResult (*)(__VA_ARGS__)>(nullptr), \
                             static_cast<decltype(&::symbol)>(nullptr)),          \
                "cuda.h has other parameters of " #symbol);
REGROUP_CUDA_FUNCTIONS(REGROUP_CUDA_COMPARE)
#undef REGROUP_CUDA_COMPARE

}  // namespace
}  // namespace regroup::fakes::cuda
