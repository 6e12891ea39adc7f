// The members of base::Variant. For each Variant type, one source includes this and instantiates:
//   template class base::Variant<A, B>;
#pragma once

#include <utility>

#include "base/variant.h"

namespace regroup::base {

template <class... A>
Variant<A...>::Variant() = default;
template <class... A>
Variant<A...>::Variant(const Variant&) = default;
template <class... A>
Variant<A...>::Variant(Variant&&) noexcept = default;
template <class... A>
Variant<A...>& Variant<A...>::operator=(const Variant&) = default;
template <class... A>
Variant<A...>& Variant<A...>::operator=(Variant&&) noexcept = default;
template <class... A>
Variant<A...>::~Variant() = default;

template <class... A>
Variant<A...>::Variant(std::size_t index, void* value) {
  std::size_t i = 0;
  (void)((i++ == index && (this->template emplace<A>(std::move(*static_cast<A*>(value))), true)) ||
         ...);
}

template <class... A>
bool Variant<A...>::operator==(const Variant& other) const
    requires(std::equality_comparable<A>&&...) {
  // clang 14 instantiates this for alternatives that cannot be compared, too, in spite of the
  // requirement.
  if constexpr ((std::equality_comparable<A> && ...)) {
    return static_cast<const Base&>(*this) == static_cast<const Base&>(other);
  } else {
    return false;
  }
}

}  // namespace regroup::base
