// The Metal Shading Language as C++ on the processor: as much of its standard library as kernels' texts use. It has no other names than those, so
// that a text that calls anything else is not compiled.
#pragma once
#include "run.h"

#define __METAL_VERSION__ 320
#define kernel
#define device
#define constant const
#define threadgroup static
#define thread

namespace metal {
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef _Float16 half;
struct uint3 { uint x, y, z; };

template <class T, class F> static inline T as_type(F from) {
  static_assert(sizeof(T) == sizeof(F), "as_type keeps the bits");
  T to;
  memcpy(&to, &from, sizeof to);
  return to;
}

static inline uint clz(uint x) { return x ? (uint)__builtin_clz(x) : 32; }
static inline float fabs(float x) { return __builtin_fabsf(x); }
static inline float floor(float x) { return __builtin_floorf(x); }
static inline float ceil(float x) { return __builtin_ceilf(x); }
static inline float trunc(float x) { return __builtin_truncf(x); }
static inline float rint(float x) { return __builtin_rintf(x); }
static inline float fmin(float x, float y) { return __builtin_fminf(x, y); }
static inline float fma(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
static inline float fmax(float x, float y) { return __builtin_fmaxf(x, y); }
namespace precise {
static inline float sqrt(float x) { return __builtin_sqrtf(x); }
}

enum class mem_flags { mem_threadgroup };
static inline void threadgroup_barrier(mem_flags) { simt::barrier(); }
template <class T> static inline T simd_shuffle_xor(T x, ushort bits) { return simt::value_of(x, simt::current ^ bits); }

// Only the functions below reach what is in it.
class atomic_uint {
  uint word;
  friend uint atomic_load_explicit(const atomic_uint*, int);
  friend void atomic_store_explicit(atomic_uint*, uint, int);
};
enum { memory_order_relaxed };
inline uint atomic_load_explicit(const atomic_uint* p, int) { return p->word; }
inline void atomic_store_explicit(atomic_uint* p, uint v, int) { p->word = v; }
template <class F> static inline uint rlx_exchange(atomic_uint* p, F f) {
  uint old = atomic_load_explicit(p, memory_order_relaxed);
  atomic_store_explicit(p, f(old), memory_order_relaxed);
  return old;
}
static inline uint atomic_fetch_add_explicit(atomic_uint* p, uint v, int) { return rlx_exchange(p, [=](uint old) { return old + v; }); }
static inline uint atomic_fetch_and_explicit(atomic_uint* p, uint v, int) { return rlx_exchange(p, [=](uint old) { return old & v; }); }
static inline uint atomic_fetch_or_explicit(atomic_uint* p, uint v, int) { return rlx_exchange(p, [=](uint old) { return old | v; }); }
}  // namespace metal

// A kernel's last two arguments are its workgroup, and how many workgroups there are. Before them is the invocation, or the warp and the lane in it, or all three.
namespace simt {
template <> struct Argument<metal::uint> {
  static metal::uint of(void**, size_t i, size_t count) {
    switch (count - i + (words == 2)) {
      case 5: return invocation.x / 32;
      case 4: return invocation.x % 32;
      default: return invocation.x;
    }
  }
};
template <> struct Argument<metal::uint3> {
  static metal::uint3 of(void**, size_t i, size_t count) {
    const Position& of = i + 1 == count ? grid : group;
    return {of.x, of.y, of.z};
  }
};
}  // namespace simt
