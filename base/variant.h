// A std::variant of many alternatives that compiles fast: its copy, move, comparison and destructor
// are compiled once, in the source that includes variant_definitions.h, not in each of the hundred
// files that use it.
//
// std::visit, std::get_if and std::holds_alternative accept it like a std::variant.
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <variant>

namespace regroup::base {

template <class... Alternatives>
class Variant : public std::variant<Alternatives...> {
 public:
  using Base = std::variant<Alternatives...>;

  Variant();
  template <class T>
  requires(std::same_as<T, Alternatives> || ...) Variant(T value)
      : Variant(index_of<T>(), &value) {}
  Variant(const Variant& other);
  Variant(Variant&& other) noexcept;
  Variant& operator=(const Variant& other);
  Variant& operator=(Variant&& other) noexcept;
  ~Variant();
  bool operator==(const Variant& other) const requires(std::equality_comparable<Alternatives>&&...);

 private:
  // Moves from *value, which is an object of the alternative `index`.
  Variant(std::size_t index, void* value);

  template <class T>
  static constexpr std::size_t index_of() {
    std::size_t index = 0;
    (void)((std::same_as<T, Alternatives> || (++index, false)) || ...);
    return index;
  }
};

}  // namespace regroup::base

template <class... Alternatives>
struct std::variant_size<regroup::base::Variant<Alternatives...>>
    : std::integral_constant<std::size_t, sizeof...(Alternatives)> {};
template <std::size_t I, class... Alternatives>
struct std::variant_alternative<I, regroup::base::Variant<Alternatives...>>
    : std::variant_alternative<I, std::variant<Alternatives...>> {};
