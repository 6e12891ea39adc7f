// Works in blocks, so that the loops over elements are simple and vectorised: 256 MiB are refilled
// before every timed operation.
#include "tools/bench/verify.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "tools/bench/pattern.h"

namespace regroup::bench {
namespace {

using collective::Dtype;
using collective::Op;

constexpr std::size_t kBlock = 1024;  // elements

std::uint16_t bfloat16_of(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

// Rounds to nearest, ties to even. Handles 0 and numbers from 2^-14 on: no others occur here.
std::uint16_t float16_of(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (bits == 0) return 0;
  const std::uint32_t rounded = bits + 0xfffU + ((bits >> 13) & 1U);
  const std::uint32_t half = (rounded >> 13) - ((127U - 15U) << 10);
  return static_cast<std::uint16_t>(std::min<std::uint32_t>(half, 0x7c00U));
}

// The C++ type that stores an element, and the one in which results are computed.
template <class T>
struct Plain {
  using Stored = T;
  using Exact = std::conditional_t<std::is_integral_v<T>, std::uint64_t, double>;
  static Stored store(Exact value) { return static_cast<T>(value); }
  static Stored average(Exact sum, int ranks) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<std::int64_t>(static_cast<T>(sum)) / ranks);
    } else {
      return static_cast<T>(sum) / static_cast<T>(ranks);
    }
  }
};
template <std::uint16_t (*Narrow)(float)>
struct Half {
  using Stored = std::uint16_t;
  using Exact = double;
  static Stored store(double value) { return Narrow(static_cast<float>(value)); }
  static Stored average(double sum, int ranks) {
    return Narrow(static_cast<float>(sum) / static_cast<float>(ranks));
  }
};

template <class Body>
auto with_type(Dtype dtype, const Body& body) {
  switch (dtype) {
    case Dtype::kFloat32:
      return body(Plain<float>());
    case Dtype::kFloat64:
      return body(Plain<double>());
    case Dtype::kInt32:
      return body(Plain<std::int32_t>());
    case Dtype::kInt64:
      return body(Plain<std::int64_t>());
    case Dtype::kFloat16:
      return body(Half<float16_of>());
    case Dtype::kBfloat16:
      return body(Half<bfloat16_of>());
    case Dtype::kInt8:
      return body(Plain<std::int8_t>());
    case Dtype::kInt16:
      return body(Plain<std::int16_t>());
    case Dtype::kUint8:
      break;
  }
  return body(Plain<std::uint8_t>());
}

pattern_kind kind_of(const Case& c) {
  if (!c.spec->reduces) return PATTERN_ADD;
  if (c.op == Op::kProd) return PATTERN_PRODUCT;
  return c.op == Op::kBand || c.op == Op::kBor ? PATTERN_BITS : PATTERN_ADD;
}

// The input of `rank`: elements index..index+count, exact.
template <class Exact>
void bring(Exact* to, std::size_t count, const Case& c, std::size_t index, int rank,
           std::uint64_t iteration) {
  const std::uint32_t mask = pattern_mask(static_cast<unsigned>(collective::size_of(c.dtype)));
  const auto run = [&]<pattern_kind Kind>() {
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t value =
          pattern_value(Kind, mask, index + i, static_cast<std::uint32_t>(rank),
                        static_cast<std::uint32_t>(iteration));
      // A signed number converts to floating point in one instruction.
      to[i] = static_cast<Exact>(static_cast<std::int32_t>(value));
    }
  };
  switch (kind_of(c)) {
    case PATTERN_ADD:
      return run.template operator()<PATTERN_ADD>();
    case PATTERN_PRODUCT:
      return run.template operator()<PATTERN_PRODUCT>();
    case PATTERN_BITS:
      return run.template operator()<PATTERN_BITS>();
  }
}

template <class Exact>
void reduce(Exact* sum, const Exact* more, std::size_t count, Op op) {
  const auto each = [&](auto combine) {
    for (std::size_t i = 0; i < count; ++i) sum[i] = combine(sum[i], more[i]);
  };
  switch (op) {
    case Op::kSum:
    case Op::kAvg:
      return each([](Exact a, Exact b) { return a + b; });
    case Op::kProd:
      return each([](Exact a, Exact b) { return a * b; });
    case Op::kMin:
      return each([](Exact a, Exact b) { return std::min(a, b); });
    case Op::kMax:
      return each([](Exact a, Exact b) { return std::max(a, b); });
    case Op::kBand:
    case Op::kBor:
      if constexpr (std::is_integral_v<Exact>) {
        if (op == Op::kBand) return each([](Exact a, Exact b) { return a & b; });
        return each([](Exact a, Exact b) { return a | b; });
      }
  }
}

template <class Type>
std::uint64_t wrong_in_block(const std::byte* result, std::size_t count, const Part& part,
                             std::size_t skip, const Case& c, int ranks, std::uint64_t iteration) {
  std::array<typename Type::Exact, kBlock> exact;
  const bool all = part.source == Part::kAllRanks;
  bring(exact.data(), count, c, part.index + skip, all ? 0 : part.source, iteration);
  for (int r = 1; all && r < ranks; ++r) {
    std::array<typename Type::Exact, kBlock> more;
    bring(more.data(), count, c, part.index + skip, r, iteration);
    reduce(exact.data(), more.data(), count, c.op);
  }
  const bool average = all && c.op == Op::kAvg;
  std::array<typename Type::Stored, kBlock> want;
  for (std::size_t i = 0; i < count; ++i) {
    want[i] = average ? Type::average(exact[i], ranks) : Type::store(exact[i]);
  }
  if (std::memcmp(result, want.data(), count * sizeof want[0]) == 0) return 0;
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto* bits = reinterpret_cast<const std::byte*>(&want[i]);
    wrong += std::memcmp(result + i * sizeof want[0], bits, sizeof want[0]) != 0 ? 1 : 0;
  }
  return wrong;
}

}  // namespace

void fill(collective::Output to, const Case& c, int rank, std::uint64_t iteration) {
  with_type(c.dtype, [&](auto type) {
    using Type = decltype(type);
    std::array<typename Type::Exact, kBlock> exact;
    std::array<typename Type::Stored, kBlock> stored;
    const std::size_t elements = to.size() / sizeof stored[0];
    for (std::size_t at = 0; at < elements; at += kBlock) {
      const std::size_t count = std::min(kBlock, elements - at);
      bring(exact.data(), count, c, at, rank, iteration);
      for (std::size_t i = 0; i < count; ++i) stored[i] = Type::store(exact[i]);
      std::memcpy(to.data() + at * sizeof stored[0], stored.data(), count * sizeof stored[0]);
    }
  });
}

void spoil(collective::Output output) {
  // NaN; for integers -1, which only a wrapped result can be.
  std::memset(output.data(), 0xff, output.size());
}

std::uint64_t count_wrong(collective::Input result, const std::vector<Part>& parts, const Case& c,
                          int ranks, std::uint64_t iteration) {
  return with_type(c.dtype, [&](auto type) {
    using Type = decltype(type);
    std::uint64_t wrong = 0;
    for (const Part& part : parts) {
      for (std::size_t done = 0; done < part.count; done += kBlock) {
        const std::size_t count = std::min(kBlock, part.count - done);
        wrong +=
            wrong_in_block<Type>(result.data() + (part.at + done) * sizeof(typename Type::Stored),
                                 count, part, done, c, ranks, iteration);
      }
    }
    return wrong;
  });
}

}  // namespace regroup::bench
