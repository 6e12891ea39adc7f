// Philox, the normal quantile, and values of each element type.
#include "collective/ps/init.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>

#include "collective/reduce/half.h"

namespace regroup::collective::ps {
namespace {

// log(x), x > 0 and normal: x = m * 2^e with m in [sqrt(1/2), sqrt(2)); log(m) = 2 atanh(s) with
// s = (m - 1) / (m + 1), |s| < 0.172: the terms of the series that are dropped are below 1e-15.
double own_log(double x) {
  constexpr double kLog2 = 0.693147180559945309417;
  auto bits = std::bit_cast<std::uint64_t>(x);
  auto exponent = static_cast<int>(bits >> 52) - 1023;
  bits = (bits & 0x000fffffffffffffULL) | 0x3ff0000000000000ULL;
  auto m = std::bit_cast<double>(bits);
  if (m > 1.41421356237309504880) {
    m /= 2;
    ++exponent;
  }
  const double s = (m - 1) / (m + 1), square = s * s;
  double sum = 0;
  for (int k = 19; k >= 1; k -= 2) sum = sum * square + 1.0 / k;
  return exponent * kLog2 + 2 * s * sum;
}

}  // namespace

PhiloxCounter philox4x32(PhiloxCounter c, PhiloxKey k) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t first = 0xd2511f53ULL * c[0], second = 0xcd9e8d57ULL * c[2];
    c = {static_cast<std::uint32_t>(second >> 32) ^ c[1] ^ k[0], static_cast<std::uint32_t>(second),
         static_cast<std::uint32_t>(first >> 32) ^ c[3] ^ k[1], static_cast<std::uint32_t>(first)};
    k = {k[0] + 0x9e3779b9U, k[1] + 0xbb67ae85U};
  }
  return c;
}

double normal_quantile(double p) {
  const double q = p - 0.5;
  if (q >= -0.425 && q <= 0.425) {
    const double r = 0.180625 - q * q;
    return q *
           (((5.9109374720e+01 * r + 1.5929113202e+02) * r + 5.0434271938e+01) * r +
            3.3871327179e+00) /
           (((6.7187563600e+01 * r + 7.8757757664e+01) * r + 1.7895169469e+01) * r + 1);
  }
  double r = __builtin_sqrt(-own_log(q < 0 ? p : 1 - p));
  double value = 0;
  if (r <= 5) {
    r -= 1.6;
    value = (((1.7023821103e-01 * r + 1.3067284816e+00) * r + 2.7568153900e+00) * r +
             1.4234372777e+00) /
            ((1.2021132975e-01 * r + 7.3700164250e-01) * r + 1);
  } else {
    r -= 5;
    value = (((1.7337203997e-02 * r + 4.2868294337e-01) * r + 3.0812263860e+00) * r +
             6.6579051150e+00) /
            ((1.2258202635e-02 * r + 2.4197894225e-01) * r + 1);
  }
  return q < 0 ? -value : value;
}

PhiloxKey philox_key(std::uint64_t job_seed, std::string_view table) {
  const std::uint64_t key = mix64(job_seed) ^ hash_of_name(table);
  return {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)};
}

InitialRows::InitialRows(std::uint64_t job_seed, const TableSpec& spec)
    : init_(spec.init), dtype_(spec.dtype), key_(philox_key(job_seed, spec.name)) {}

double InitialRows::draw(std::uint32_t random) const {
  // The middle of one of 2^32 equal parts of (0, 1).
  const double p = (random + 0.5) * 0x1p-32;
  if (init_.kind == InitialKind::kUniform) return init_.first + (init_.second - init_.first) * p;
  return init_.first + init_.second * normal_quantile(p);
}

void InitialRows::fill(std::uint64_t position, std::size_t first, std::span<std::byte> out) const {
  const std::size_t size = size_of(dtype_), count = out.size() / size;
  assert(out.size() % size == 0);
  if (init_.kind == InitialKind::kZeros) {
    std::memset(out.data(), 0, out.size());
    return;
  }
  const auto put = [&](std::size_t at, double value) {
    std::byte* const to = out.data() + at * size;
    const auto store = [to](auto number) { std::memcpy(to, &number, sizeof number); };
    switch (dtype_) {
      case Dtype::kFloat64:
        return store(value);
      case Dtype::kInt32:
        return store(static_cast<std::int32_t>(value));
      case Dtype::kInt64:
        return store(static_cast<std::int64_t>(value));
      case Dtype::kFloat16:
      case Dtype::kBfloat16: {
        const auto single = static_cast<float>(value);
        return reduce::narrow(to, reinterpret_cast<const std::byte*>(&single), 1, dtype_);
      }
      default:
        return store(static_cast<float>(value));
    }
  };
  if (init_.kind == InitialKind::kConstant) {
    for (std::size_t i = 0; i < count; ++i) put(i, init_.first);
    return;
  }
  PhiloxCounter random{};
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t element = first + i;
    if (i == 0 || element % 4 == 0) {
      random = philox4x32(
          {static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32),
           static_cast<std::uint32_t>(element / 4), static_cast<std::uint32_t>(element / 4 >> 32)},
          key_);
    }
    put(i, draw(random[element % 4]));
  }
}

}  // namespace regroup::collective::ps
