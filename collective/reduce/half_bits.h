// One value between a 16-bit float and float32, rounded to nearest even; NaN becomes the one NaN of
// the type. Always inlined, because kernels.inc, which is compiled for several instruction sets,
// includes it.
#pragma once

namespace regroup::collective::reduce {

[[gnu::always_inline]] inline float widened_half(unsigned half) {
  // The exponent moves from bias 15 to 127 by a multiplication, which is right for denormals too.
  const float magnitude = __builtin_bit_cast(float, (half & 0x7fff) << 13) * 0x1p112F;
  unsigned bits = __builtin_bit_cast(unsigned, magnitude) | (half & 0x8000) << 16;
  bits |= (half & 0x7c00) == 0x7c00 ? 0x7f800000U : 0U;
  return __builtin_bit_cast(float, bits);
}

[[gnu::always_inline]] inline unsigned narrowed_half(float value) {
  constexpr unsigned kInfinity = 0x7f800000;
  constexpr unsigned kTooLarge = (127U + 16) << 23;
  constexpr unsigned kNormal = (127U - 14) << 23;
  constexpr unsigned kMagic = ((127U - 15) + (23 - 10) + 1)
                              << 23;  // an addition that rounds at 2^-24
  const unsigned bits = __builtin_bit_cast(unsigned, value);
  const unsigned size = bits & 0x7fffffff;
  const unsigned sign = (bits & 0x80000000) >> 16;
  const float shifted =
      __builtin_bit_cast(float, size < kNormal ? size : 0U) + __builtin_bit_cast(float, kMagic);
  const unsigned denormal = __builtin_bit_cast(unsigned, shifted) - kMagic;
  const unsigned normal = (size - ((127U - 15) << 23) + 0xfff + (size >> 13 & 1)) >> 13;
  const unsigned finite = size < kNormal ? denormal : normal;
  const unsigned number = size < kTooLarge ? finite : 0x7c00U;
  return size > kInfinity ? 0x7e00U : number | sign;
}

[[gnu::always_inline]] inline float widened_bfloat(unsigned bfloat) {
  return __builtin_bit_cast(float, bfloat << 16);
}

[[gnu::always_inline]] inline unsigned narrowed_bfloat(float value) {
  const unsigned bits = __builtin_bit_cast(unsigned, value);
  const unsigned rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return (bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0U : rounded;
}

}  // namespace regroup::collective::reduce
