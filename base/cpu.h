// Processor-specific instructions of x86-64 and ARM64 that C++ has no name for. A third
// architecture adds a branch here, and a row in each table of kernels (base/crc32c.cc,
// collective/reduce/kernels.cc, collective/reduce/optimizer_kernels.cc).
//
// Any thread; nothing blocks or fails. Everything is always inlined and calls no function, so that
// a source compiled for one instruction set (collective/reduce/kernels.inc) may use it.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#else
#error "base/cpu.h: no instructions for this processor; there are those of x86-64 and ARM64"
#endif

#define REGROUP_CPU [[gnu::always_inline]] inline

namespace regroup::base {

#if defined(__x86_64__)

// For a spin loop, between two polls: lets the core's other hardware thread run.
REGROUP_CPU void cpu_relax() { _mm_pause(); }

// Orders every earlier store, stream_line() included, before every later store.
REGROUP_CPU void store_fence() { _mm_sfence(); }

// Makes every earlier store visible before any later load is executed. The instruction that
// std::atomic_thread_fence() compiles to; ThreadSanitizer refuses that function.
REGROUP_CPU void full_fence() { asm volatile("lock orq $0, (%%rsp)" ::: "memory", "cc"); }

// Prefetches the cache line at `line` into this core's cache, for writing.
REGROUP_CPU void prefetch_to_write(const void* line) {
  asm volatile("prefetchw %0" : : "m"(*static_cast<const unsigned char*>(line)));
}

// Stores 64 bytes without bringing them into the cache; `to` is aligned to 16 bytes. Only
// store_fence() and full_fence() order these stores.
REGROUP_CPU void stream_line(void* to, const void* from) {
  const auto* source = static_cast<const __m128i*>(from);
  auto* target = static_cast<__m128i*>(to);
  _mm_stream_si128(target, _mm_loadu_si128(source));
  _mm_stream_si128(target + 1, _mm_loadu_si128(source + 1));
  _mm_stream_si128(target + 2, _mm_loadu_si128(source + 2));
  _mm_stream_si128(target + 3, _mm_loadu_si128(source + 3));
}

// This core's steady clock, in ticks of unknown length; cheaper to read than the system's clock.
REGROUP_CPU std::uint64_t cpu_ticks() { return __rdtsc(); }

// The thread's floating-point control register: rounding, denormals, traps. Its kFloatFlags bits
// record exceptions since they were last cleared and control nothing.
using FloatMode = std::uint32_t;
// Rounds to nearest even, keeps denormals, no traps.
inline constexpr FloatMode kStandardFloatMode = 0x1f80;
inline constexpr FloatMode kFloatFlags = 0x3f;
// Rounds towards zero, flushes denormals, no traps.
inline constexpr FloatMode kFastFloatMode = 0xff80 | 0x40;
REGROUP_CPU FloatMode float_mode() { return _mm_getcsr(); }
REGROUP_CPU void set_float_mode(FloatMode mode) { _mm_setcsr(mode); }

REGROUP_CPU bool is_amd() { return __builtin_cpu_is("amd") != 0; }

// The widest instruction set that both this processor and our kernels support; part of the numeric
// fingerprint.
REGROUP_CPU const char* instruction_set() {
  if (__builtin_cpu_supports("avx512f")) return "avx512";
  return __builtin_cpu_supports("avx2") ? "avx2" : "sse2";
}

#else

// `yield` does nothing on cores with one hardware thread; `isb` holds them about as long as a pause
// on x86.
REGROUP_CPU void cpu_relax() { asm volatile("isb" ::: "memory"); }

REGROUP_CPU void store_fence() { asm volatile("dmb ishst" ::: "memory"); }

REGROUP_CPU void full_fence() { asm volatile("dmb ish" ::: "memory"); }

REGROUP_CPU void prefetch_to_write(const void* line) {
  asm volatile("prfm pstl1keep, %0" : : "Q"(*static_cast<const unsigned char*>(line)));
}

REGROUP_CPU void stream_line(void* to, const void* from) {
  const auto* source = static_cast<const unsigned char*>(from);
  struct CacheLine {
    unsigned char bytes[64];
  };
  asm volatile("stnp %q2, %q3, [%1]\n\tstnp %q4, %q5, [%1, #32]"
               : "=m"(*static_cast<CacheLine*>(to))
               : "r"(to), "w"(vld1q_u8(source)), "w"(vld1q_u8(source + 16)),
                 "w"(vld1q_u8(source + 32)), "w"(vld1q_u8(source + 48)));
}

REGROUP_CPU std::uint64_t cpu_ticks() {
  std::uint64_t ticks = 0;
  asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
}

// FPCR. The exception flags are in another register (FPSR).
using FloatMode = std::uint64_t;
inline constexpr FloatMode kStandardFloatMode = 0;
inline constexpr FloatMode kFloatFlags = 0;
inline constexpr FloatMode kFastFloatMode = 0x1c00000;
REGROUP_CPU FloatMode float_mode() {
  FloatMode mode = 0;
  asm volatile("mrs %0, fpcr" : "=r"(mode)::"memory");
  return mode;
}
REGROUP_CPU void set_float_mode(FloatMode mode) {
  asm volatile("msr fpcr, %0" ::"r"(mode) : "memory");
}

REGROUP_CPU bool is_amd() { return false; }

REGROUP_CPU const char* instruction_set() { return "neon"; }

#endif

}  // namespace regroup::base

#undef REGROUP_CPU
