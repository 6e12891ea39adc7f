// Element-wise definitions.
#include "tests/collective/reference.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "proto/canonical.h"

namespace regroup::collective::testing {
namespace {

struct Half {
  std::uint16_t bits;
};
struct Bfloat {
  std::uint16_t bits;
};

// Sign, exponent and mantissa of a 16-bit float with `kMantissa` bits and the least exponent
// `kLeast`.
std::uint16_t rounded(float value, int mantissa, int least) {
  if (std::isnan(value)) return mantissa == 10 ? 0x7e00 : 0x7fc0;
  const double size = std::fabs(static_cast<double>(value));
  const int infinity = mantissa == 10 ? 0x7c00 : 0x7f80;
  int bits = 0;
  if (std::isinf(value)) bits = infinity;
  if (size != 0 && !std::isinf(value)) {
    const int exponent = std::max(std::ilogb(size), least);
    const auto units = static_cast<int>(std::nearbyint(std::ldexp(size, mantissa - exponent)));
    bits = std::min(((exponent - least) << mantissa) + units, infinity);
  }
  return static_cast<std::uint16_t>(bits | (std::signbit(value) ? 0x8000 : 0));
}

template <class T>
struct Arithmetic {
  using Value = T;
  static Value load(T stored) { return stored; }
  static T store(Value value) {
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(value)) return std::numeric_limits<T>::quiet_NaN();
    }
    return value;
  }
};
template <>
struct Arithmetic<Half> {
  using Value = float;
  static float load(Half stored) { return value_of_half(stored.bits); }
  static Half store(float value) { return {half_of(value)}; }
};
template <>
struct Arithmetic<Bfloat> {
  using Value = float;
  static float load(Bfloat stored) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(stored.bits) << 16);
  }
  static Bfloat store(float value) { return {bfloat_of(value)}; }
};

template <class V>
V extreme(V a, V b, bool least) {
  if constexpr (std::is_floating_point_v<V>) {
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<V>::quiet_NaN();
    if (a == 0 && b == 0) return std::signbit(a) == least ? a : b;
  }
  return least == (a < b) ? a : b;
}

template <class V>
V combined(Op op, V a, V b) {
  if constexpr (std::is_integral_v<V>) {
    using Wide = std::uint64_t;
    const auto x = static_cast<Wide>(static_cast<std::make_unsigned_t<V>>(a));
    const auto y = static_cast<Wide>(static_cast<std::make_unsigned_t<V>>(b));
    if (op == Op::kSum || op == Op::kAvg) return static_cast<V>(x + y);
    if (op == Op::kProd) return static_cast<V>(x * y);
    if (op == Op::kBand) return static_cast<V>(x & y);
    if (op == Op::kBor) return static_cast<V>(x | y);
  } else {
    if (op == Op::kSum || op == Op::kAvg) return a + b;
    if (op == Op::kProd) return a * b;
  }
  return extreme(a, b, op == Op::kMin);
}

template <class T>
T element_at(const Bytes& leaf, std::size_t index) {
  T value;
  std::memcpy(&value, leaf.data() + index * sizeof(T), sizeof(T));
  return value;
}

template <class T>
typename Arithmetic<T>::Value fold_at(Op op, std::span<const Bytes> leaves, proto::Interval node,
                                      std::size_t index) {
  if (node.size() == 1) return Arithmetic<T>::load(element_at<T>(leaves[node.begin], index));
  const std::uint32_t middle = proto::canonical_split(node);
  return combined(op, fold_at<T>(op, leaves, {node.begin, middle}, index),
                  fold_at<T>(op, leaves, {middle, node.end}, index));
}

template <class T>
Bytes fold(Op op, std::span<const Bytes> leaves, proto::Interval node) {
  using Value = typename Arithmetic<T>::Value;
  Bytes out(leaves[node.begin].size());
  for (std::size_t i = 0; i < out.size() / sizeof(T); ++i) {
    Value value = fold_at<T>(op, leaves, node, i);
    if (op == Op::kAvg) value = static_cast<Value>(value / static_cast<Value>(node.size()));
    const T stored = Arithmetic<T>::store(value);
    std::memcpy(out.data() + i * sizeof(T), &stored, sizeof(T));
  }
  return out;
}

// Splitmix64: much is drawn in these tests.
struct Random {
  std::uint64_t state;

  std::uint64_t operator()() {
    std::uint64_t z = state += 0x9e3779b97f4a7c15ULL;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
    return z ^ z >> 31;
  }
};

template <class T>
T random_element(Random& random, bool odd) {
  const std::uint64_t bits = random();
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(bits);
  } else {
    using Value = typename Arithmetic<T>::Value;
    using Limits = std::numeric_limits<Value>;
    const Value odds[] = {Limits::quiet_NaN(),
                          Limits::infinity(),
                          -Limits::infinity(),
                          Value(-0.0),
                          Value(0),
                          Limits::denorm_min(),
                          static_cast<Value>(0x1p-20),
                          -Limits::max()};
    if (odd && bits % 16 == 0) return Arithmetic<T>::store(odds[bits / 16 % 8]);
    // 2^-20 to 2^19 times a number below 1.
    const auto scale = std::bit_cast<double>((1023 - 20 + bits % 40) << 52);
    const double mantissa = static_cast<double>(static_cast<std::int64_t>(bits)) * 0x1p-63;
    return Arithmetic<T>::store(static_cast<Value>(mantissa * scale));
  }
}

template <class T>
Bytes leaf_of(std::size_t elements, std::uint64_t seed, bool odd) {
  Random random{seed};
  Bytes out(elements * sizeof(T));
  for (std::size_t i = 0; i < elements; ++i) {
    const T value = random_element<T>(random, odd);
    std::memcpy(out.data() + i * sizeof(T), &value, sizeof(T));
  }
  return out;
}

// Calls `use` with a value of the C++ type of `dtype`.
template <class Use>
Bytes with_type(Dtype dtype, Use use) {
  // NOLINTBEGIN(bugprone-branch-clone): each calls another use()
  switch (dtype) {
    case Dtype::kFloat32:
      return use(float());
    case Dtype::kFloat64:
      return use(double());
    case Dtype::kInt32:
      return use(std::int32_t());
    case Dtype::kInt64:
      return use(std::int64_t());
    case Dtype::kFloat16:
      return use(Half());
    case Dtype::kBfloat16:
      return use(Bfloat());
    case Dtype::kInt8:
      return use(std::int8_t());
    case Dtype::kInt16:
      return use(std::int16_t());
    case Dtype::kUint8:
      return use(std::uint8_t());
  }
  // NOLINTEND(bugprone-branch-clone)
  return {};
}

void append(Bytes* to, std::span<const std::byte> from) {
  to->insert(to->end(), from.begin(), from.end());
}

}  // namespace

float value_of_half(std::uint16_t half) {
  const int exponent = half >> 10 & 31;
  const int mantissa = half & 1023;
  double size = std::ldexp(exponent == 0 ? mantissa : mantissa + 1024, std::max(exponent, 1) - 25);
  if (exponent == 31) size = mantissa == 0 ? HUGE_VAL : std::nan("");
  return static_cast<float>((half & 0x8000) != 0 ? -size : size);
}
std::uint16_t half_of(float value) { return rounded(value, 10, -14); }
std::uint16_t bfloat_of(float value) { return rounded(value, 7, -126); }

Bytes make_leaf(Dtype dtype, std::size_t elements, std::uint64_t seed, bool odd) {
  return with_type(dtype, [&](auto type) { return leaf_of<decltype(type)>(elements, seed, odd); });
}

Bytes reference_fold(Dtype dtype, Op op, std::span<const Bytes> leaves, proto::Interval interval) {
  return with_type(dtype, [&](auto type) { return fold<decltype(type)>(op, leaves, interval); });
}

Bytes reference_output(const Operation& o, std::span<const Bytes> inputs, int rank) {
  const bool root = rank == o.root;
  const auto block = [&](std::size_t of, std::size_t index, std::size_t bytes) {
    return std::span<const std::byte>(inputs[of]).subspan(index * bytes, bytes);
  };
  const auto self = static_cast<std::size_t>(rank);
  Bytes out;
  switch (o.kind) {
    case Kind::kAllreduce:
    case Kind::kReduce:
    case Kind::kReduceScatter: {
      if (o.kind == Kind::kReduce && !root) return {};
      out = reference_fold(o.dtype, o.op, inputs, {0, static_cast<std::uint32_t>(inputs.size())});
      if (o.kind != Kind::kReduceScatter) return out;
      const std::size_t n = out.size() / inputs.size();
      return {out.begin() + static_cast<std::ptrdiff_t>(self * n),
              out.begin() + static_cast<std::ptrdiff_t>((self + 1) * n)};
    }
    case Kind::kAllgather:
    case Kind::kGather:
      for (const Bytes& input : inputs) {
        if (o.kind == Kind::kAllgather || root) append(&out, input);
      }
      return out;
    case Kind::kBroadcast:
      return inputs[static_cast<std::size_t>(o.root)];
    case Kind::kScatter: {
      const auto from = static_cast<std::size_t>(o.root);
      append(&out, block(from, self, inputs[from].size() / inputs.size()));
      return out;
    }
    case Kind::kAlltoall:
      for (std::size_t r = 0; r < inputs.size(); ++r)
        append(&out, block(r, self, inputs[r].size() / inputs.size()));
      return out;
    default:
      return {};
  }
}

}  // namespace regroup::collective::testing
